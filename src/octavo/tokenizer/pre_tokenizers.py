# SPDX-License-Identifier: Apache-2.0
"""How byte-level vocabularies cut text before merging, by the name that GGUF gives in
``tokenizer.ggml.pre``.

A rule is a list of regular expressions (Oniguruma's dialect, as in the models' own tokenizer
files). Each cuts every piece that the one before left into matches and what lies between them. A
wrong rule gives slightly wrong ids and quietly worse answers, so an unknown name is an error, and a
name is listed only when its rule has been compared with reference ids or is known to be the same.
"""

from __future__ import annotations

from typing import NamedTuple


class PreTokenizer(NamedTuple):
    """``patterns`` cut in this order. ``whole_words``: a piece that is itself in the vocabulary is
    taken as it is, without merging. ``adds_bos``: the default where the file does not say.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TRAILING_SPACE = r"\s+(?!\S)|\s+"  # leaves the last space of a run to the word that follows

_GPT2_WORDS = (
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_TRAILING_SPACE}"
)


def _modern_words(digits: str, letters: str = r"\p{L}", others: str = r"\p{L}\p{N}") -> str:
    """The shape shared by Llama 3, Qwen and their kin; they differ in the three arguments."""
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{digits}"
        rf"| ?[^\s{others}]+[\r\n]*|\s*[\r\n]+|{_TRAILING_SPACE}"
    )


_GPT2 = PreTokenizer((_GPT2_WORDS,))
_STARCODER = PreTokenizer((r"\p{N}", _GPT2_WORDS))
_LLAMA3 = PreTokenizer((_modern_words(r"\p{N}{1,3}"),), whole_words=True, adds_bos=True)
_CHATGLM4 = PreTokenizer((_modern_words(r"\p{N}{1,3}"),))
_QWEN2 = PreTokenizer((_modern_words(r"\p{N}"),))
_QWEN35 = PreTokenizer((_modern_words(r"\p{N}", letters=r"\p{L}\p{M}", others=r"\p{L}\p{M}\p{N}"),))
_FALCON = PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2_WORDS, r"[0-9][0-9][0-9]"))
_DEEPSEEK_CODER = PreTokenizer(
    (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4"), _GPT2),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        _STARCODER,
    ),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA3),
    **dict.fromkeys(("glm4", "chatglm-bpe"), _CHATGLM4),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"), _QWEN2),
    "qwen35": _QWEN35,
    "falcon": _FALCON,
    "deepseek-coder": _DEEPSEEK_CODER,
}
