# SPDX-License-Identifier: Apache-2.0
"""What the reader accepts, the native core accepts too: no file gets as far as a ``ValueError``."""

from __future__ import annotations

import random

from gguf_writer import GgufWriter
from octavo.formats.gguf import GgufFile
from octavo.loaders.gguf import check_gguf, load_gguf
from octavo.models.registry import spec_for
from octavo.ops.decoder import Decoder
from octavo.types.errors import BadCheckpoint, UnsupportedModel
from tiny_gguf import Q8_0, tiny_gemma3, tiny_llama

SEED = 7
CASES = 300
VALUES = (0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 64, 96, 256, 257, 2**16, 2**24, 2**31 - 1)


def vary(rng: random.Random) -> bytes:
    """A well-formed file whose sizes, and now and then shapes and values, are drawn at random."""
    writer = rng.choice((tiny_llama, tiny_gemma3))(seed=1, matrix_type=Q8_0)
    arch = str(writer.metadata["general.architecture"])
    keys = [key for key in writer.metadata if key.startswith(f"{arch}.")]
    for _ in range(rng.randint(1, 2)):
        key = rng.choice(keys)
        value = rng.choice(VALUES)
        is_float = isinstance(writer.metadata[key], float)
        writer.metadata[key] = rng.choice((1e-30, 1e-6, 0.5, 3.0, 1e14)) if is_float else value
    if rng.random() < 0.3:
        tensor = rng.choice(writer.tensors)
        tensor.data = rng.randbytes(len(tensor.data))  # infinities and NaNs among them
    return writer.build()


def load(data: bytes) -> bool:
    """Whether a decoder took the file's weights. Only octavo's refusals are caught."""
    try:
        file = GgufFile("tiny.gguf", memoryview(data))
        spec, tensors = spec_for(file)
        check_gguf(file, tensors)
    except (BadCheckpoint, UnsupportedModel):
        return False
    with Decoder(spec, num_threads=1) as decoder:
        load_gguf(file, tensors, decoder)
    return True


def test_accepted_files_load():
    loaded = 0
    for case in range(CASES):
        try:
            loaded += load(vary(random.Random(SEED * 1_000_000 + case)))
        except BaseException as error:
            error.add_note(f"seed={SEED} case={case}")
            raise
    assert CASES // 10 < loaded < CASES


def test_plain_files_load():
    for make in (tiny_llama, tiny_gemma3):
        for matrix_type in (0, Q8_0):
            writer: GgufWriter = make(matrix_type=matrix_type)
            assert load(writer.build())
