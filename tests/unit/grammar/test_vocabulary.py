# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys

import pytest

from fakes import ByteTokenizer
from octavo.grammar.vocabulary import Vocabulary


def test_the_library_sees_every_token_and_one_end_of_its_own():
    vocab = Vocabulary(ByteTokenizer())
    assert vocab.ll is vocab.ll
    assert (vocab.ll.vocab_size, vocab.end_id) == (260, 259)
    assert vocab.ll.eos_tokens == [259]
    assert vocab.mask_bytes == 33
    assert [token.byte for token in vocab.byte_tokens] == list(range(256))
    assert vocab.ll.is_special_token(257)
    assert not vocab.ll.is_special_token(65)


def test_numpy_stays_out():
    """The library has a part that needs it; this one does not."""
    import subprocess

    code = "import octavo.grammar.compiler, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.model
def test_a_real_vocabulary(smollm2_path):
    from octavo.formats.gguf import GgufFile
    from octavo.tokenizer.gguf_vocab import tokenizer_from_gguf

    file = GgufFile.open(smollm2_path)
    try:
        tokenizer = tokenizer_from_gguf(file.metadata)
    finally:
        file.close()
    vocab = Vocabulary(tokenizer)
    assert vocab.ll.vocab_size == tokenizer.vocab_size + 1
    text = '{"name": "Grüße 🌍"}'
    assert vocab.ll.decode_bytes(tokenizer.encode(text, add_special_tokens=False)) == text.encode()
    assert len(vocab.byte_tokens) > 128
