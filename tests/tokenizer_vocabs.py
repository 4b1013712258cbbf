# SPDX-License-Identifier: Apache-2.0
"""Two tiny vocabularies as GGUF metadata: one of each kind."""

from __future__ import annotations

from octavo.tokenizer.bpe import BYTE_TO_CHAR

PREFIX = "tokenizer.ggml."


def byte_level_metadata() -> dict[str, object]:
    """Ids 0 and 1 begin and end a turn, 2 to 257 are the bytes, 258 is "ab"."""
    texts = ["<|im_start|>", "<|im_end|>", *BYTE_TO_CHAR, "ab"]
    return {
        PREFIX + "model": "gpt2",
        PREFIX + "pre": "gpt-2",
        PREFIX + "tokens": texts,
        PREFIX + "token_type": [3, 3] + [1] * 257,
        PREFIX + "merges": ["a b"],
        PREFIX + "bos_token_id": 0,
        PREFIX + "eos_token_id": 1,
    }


def sentence_piece_metadata() -> dict[str, object]:
    """<unk>, BOS, EOS, the bytes, then a few pieces; wants BOS and a space in front."""
    pieces = ["\u2581a", "\u2581b", "ab", "\u2581\u2581", "\u2581", "a", "b"]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    return {
        PREFIX + "model": "llama",
        PREFIX + "tokens": texts,
        PREFIX + "token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces),
        PREFIX + "scores": [0.0] * 259 + [-float(rank) for rank in range(len(pieces))],
        PREFIX + "bos_token_id": 1,
        PREFIX + "eos_token_id": 2,
        PREFIX + "unknown_token_id": 0,
    }
