# SPDX-License-Identifier: Apache-2.0
"""Cut whole vocabularies down to what their reference texts can use, so that tests can keep them.

    python tools/shrink_vocab_vectors.py VOCAB_DIR VECTORS.jsonl OUT.json.gz

The inputs are those of ``check_vocab_vectors.py``. A token or merge whose text is no part of any
reference text can never take part in encoding one, so leaving it out changes no result; ids are
renumbered. OUT maps a vocabulary's name to its metadata and its (text, ids) pairs.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from check_vocab_vectors import Vectors, folder_vectors, jsonl_vectors
from octavo.formats.gguf import GgufFile
from octavo.tokenizer.base import TokenKind
from octavo.tokenizer.bpe import BYTE_TO_CHAR
from octavo.tokenizer.gguf_vocab import PREFIX, tokenizer_from_gguf
from octavo.tokenizer.spm import SPACE
from octavo.types.errors import UnsupportedModel

SCALARS = ("model", "pre", "add_space_prefix")  # BOS and EOS are no part of the vectors


def main(folder: Path, vectors_path: Path, out: Path) -> None:
    vectors = folder_vectors(folder)
    for name, pairs in jsonl_vectors(vectors_path).items():
        vectors[name].extend(pairs)
    shrunk = shrink_all(folder, vectors)
    data = json.dumps(shrunk, ensure_ascii=False, separators=(",", ":")).encode()
    out.write_bytes(gzip.compress(data, 9, mtime=0))


def shrink_all(folder: Path, vectors: Vectors) -> dict[str, object]:
    shrunk: dict[str, object] = {}
    for name in sorted(vectors):
        path = folder / f"ggml-vocab-{name}.gguf"
        if not path.exists():
            continue
        metadata = GgufFile.open(path).metadata
        try:
            tokenizer_from_gguf(metadata)
        except UnsupportedModel:
            continue
        unique = dict(vectors[name])
        shrunk[name] = shrink(metadata, unique)
    return shrunk


def shrink(metadata: Mapping[str, Any], vectors: Mapping[str, list[int]]) -> dict[str, object]:
    texts = list(metadata[PREFIX + "tokens"])
    kinds = list(metadata[PREFIX + "token_type"])
    is_byte_level = metadata[PREFIX + "model"] == "gpt2"
    haystack = "\n".join(map(_spell_bytes if is_byte_level else _spell_spaces, vectors))
    raw = "\n".join(vectors)
    kept = [i for i in range(len(texts)) if _is_usable(texts[i], kinds[i], haystack, raw)]
    new_ids = {old: new for new, old in enumerate(kept)}
    small: dict[str, object] = {
        PREFIX + key: metadata[PREFIX + key] for key in SCALARS if PREFIX + key in metadata
    }
    small[PREFIX + "tokens"] = [texts[i] for i in kept]
    small[PREFIX + "token_type"] = [kinds[i] for i in kept]
    if is_byte_level:
        merges = [line.split(" ") for line in metadata[PREFIX + "merges"]]
        small[PREFIX + "merges"] = [f"{a} {b}" for a, b in merges if a + b in haystack]
    else:
        scores = metadata[PREFIX + "scores"]
        small[PREFIX + "scores"] = [scores[i] for i in kept]
    pairs = [(text, [new_ids[i] for i in ids]) for text, ids in vectors.items()]
    return {"metadata": small, "vectors": pairs}


def _is_usable(text: str, kind: int, haystack: str, raw: str) -> bool:
    if kind == TokenKind.NORMAL:
        return text in haystack or text in BYTE_TO_CHAR
    return kind == TokenKind.BYTE or text in raw


def _spell_bytes(text: str) -> str:
    return "".join(BYTE_TO_CHAR[byte] for byte in text.encode())


def _spell_spaces(text: str) -> str:
    return SPACE + text.replace(" ", SPACE)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
