# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities in OpenAI's two shapes: the chat one and the older one of completions."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence

from octavo.types.outputs import Logprob, RequestOutput
from octavo.types.ports import Tokenizer

LOGPROB_MIN = -9999.0  # JSON has no infinity; vLLM's floor

TokenLogprobs = Mapping[int, Logprob]  # by token id: the sampled one and the likeliest


def token_text(raw: bytes) -> str:
    """A token's text; one that is only part of a character is spelt ``bytes:\\xe2\\x80``."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def chat_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs], num_top: int
) -> dict[str, object]:
    """The ``logprobs`` object of a chat choice; ``logprobs[i]`` belongs to ``token_ids[i]``."""
    content = []
    for token_id, by_id in zip(token_ids, logprobs, strict=True):
        entry = _chat_entry(tokenizer, token_id, by_id[token_id])
        top = [_chat_entry(tokenizer, *item) for item in _likeliest(by_id, num_top)]
        content.append({**entry, "top_logprobs": top})
    return {"content": content, "refusal": None}


def _chat_entry(tokenizer: Tokenizer, token_id: int, logprob: Logprob) -> dict[str, object]:
    raw = tokenizer.token_bytes(token_id)
    return {"token": token_text(raw), "logprob": floored(logprob.logprob), "bytes": list(raw)}


def _likeliest(by_id: TokenLogprobs, num_top: int) -> list[tuple[int, Logprob]]:
    """The ``num_top`` likeliest. A sampled token outside them is in ``by_id`` too and stays out."""
    return sorted(by_id.items(), key=lambda item: -item[1].logprob)[:num_top]


def floored(logprob: float) -> float:
    return max(logprob, LOGPROB_MIN)


def prompt_logprobs(output: RequestOutput, num_top: int) -> list[dict[str, object] | None]:
    """vLLM's field: for each token of the prompt its own logprob and those of the ``num_top``
    likeliest, by id; None for the first, which nothing comes before.
    """
    by_position: list[dict[str, object] | None] = []
    entries = output.prompt_logprobs or ()
    for token_id, by_id in zip(output.prompt_token_ids, entries, strict=True):
        if by_id is None:
            by_position.append(None)
            continue
        kept = {token_id: by_id[token_id], **dict(_likeliest(by_id, num_top))}
        by_position.append({str(id_): _prompt_entry(item) for id_, item in kept.items()})
    return by_position


def _prompt_entry(logprob: Logprob) -> dict[str, object]:
    return {
        "logprob": floored(logprob.logprob),
        "rank": logprob.rank,
        "decoded_token": logprob.decoded_token,
    }


class CompletionLogprobs:
    """Builds one choice's logprobs, chunk after chunk; ``text_offset`` counts across all of them.

    An offset is where the token's first character begins in the choice's text, in characters. A
    token that continues a character begins where that character does. Special tokens that the text
    leaves out have no width.
    """

    def __init__(self, tokenizer: Tokenizer, num_top: int, *, skips_special: bool) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._skips_special = skips_special
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(
        self, token_ids: Iterable[int], logprobs: Iterable[TokenLogprobs | None]
    ) -> dict[str, object]:
        """The object for these tokens. None (a prompt's first token) gives nulls."""
        tokens: list[str] = []
        offsets: list[int] = []
        chosen: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        for token_id, by_id in zip(token_ids, logprobs, strict=True):
            tokens.append(self._text(token_id))
            offsets.append(self._advance(token_id))
            chosen.append(None if by_id is None else floored(by_id[token_id].logprob))
            tops.append(None if by_id is None else self._top(token_id, by_id))
        return {
            "tokens": tokens,
            "token_logprobs": chosen,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _text(self, token_id: int) -> str:
        return token_text(self._tokenizer.token_bytes(token_id))

    def _advance(self, token_id: int) -> int:
        start = self._offset
        if not (self._skips_special and self._tokenizer.is_special(token_id)):
            self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
        return start

    def _top(self, token_id: int, by_id: TokenLogprobs) -> dict[str, float]:
        top = dict(_likeliest(by_id, self._num_top))
        top[token_id] = by_id[token_id]  # the sampled token is always among them
        return {self._text(id_): floored(item.logprob) for id_, item in top.items()}
