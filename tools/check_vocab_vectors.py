# SPDX-License-Identifier: Apache-2.0
"""Compare octavo's tokenizers with reference ids for whole vocabularies.

    python tools/check_vocab_vectors.py VOCAB_DIR [VECTORS.jsonl]

VOCAB_DIR holds ``ggml-vocab-NAME.gguf`` files (the models/ folder of llama.cpp; too big for this
repository). Beside each may lie ``.inp`` (texts, separated by a line ``__ggml_vocab_test__``) and
``.out`` (one line of ids per text). VECTORS.jsonl has one {"vocab", "text", "ids"} per line. Ids
are without BOS and EOS. Prints passes per vocabulary; the exit status is 1 if any text failed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from octavo.formats.gguf import GgufFile
from octavo.tokenizer.gguf_vocab import tokenizer_from_gguf
from octavo.types.errors import UnsupportedModel
from octavo.types.ports import Tokenizer

SEPARATOR = "\n__ggml_vocab_test__\n"
Vectors = dict[str, list[tuple[str, list[int]]]]


def main(arguments: list[str]) -> int:
    if not arguments or len(arguments) > 2:
        print(__doc__)
        return 2
    folder = Path(arguments[0])
    vectors = folder_vectors(folder)
    if len(arguments) == 2:
        for name, pairs in jsonl_vectors(Path(arguments[1])).items():
            vectors[name].extend(pairs)
    return int(sum(check(folder, name, vectors[name]) for name in sorted(vectors)) > 0)


def folder_vectors(folder: Path) -> Vectors:
    vectors: Vectors = defaultdict(list)
    for inputs in sorted(folder.glob("ggml-vocab-*.gguf.inp")):
        name = inputs.name.removeprefix("ggml-vocab-").removesuffix(".gguf.inp")
        texts = inputs.read_bytes().decode("utf-8").split(SEPARATOR)
        lines = inputs.with_suffix(".out").read_text().splitlines()
        ids = [[int(number) for number in line.split()] for line in lines]
        vectors[name].extend(zip(texts, ids, strict=False))
    return vectors


def jsonl_vectors(path: Path) -> Vectors:
    vectors: Vectors = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        vectors[item["vocab"]].append((item["text"], item["ids"]))
    return vectors


def check(folder: Path, name: str, pairs: list[tuple[str, list[int]]]) -> int:
    """Print one line for a vocabulary and return how many texts failed."""
    path = folder / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        print(f"{name:16} no vocabulary file")
        return 0
    try:
        tokenizer: Tokenizer = tokenizer_from_gguf(GgufFile.open(path).metadata)
    except UnsupportedModel as error:
        print(f"{name:16} unsupported: {str(error)[:90]}")
        return 0
    tried = [(tokenizer.encode(text, add_special_tokens=False), ids, text) for text, ids in pairs]
    failed = [(got, wanted, text) for got, wanted, text in tried if got != wanted]
    print(f"{name:16} {len(pairs) - len(failed)} of {len(pairs)} texts")
    for got, wanted, text in failed[:3]:
        print(f"    {text[:60]!r}\n      wanted {wanted[:24]}\n      got    {got[:24]}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
