# SPDX-License-Identifier: Apache-2.0
"""The parts of ``SamplingParams`` that speak of single tokens, held against the vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from octavo.types.errors import InvalidRequest
from octavo.types.ports import Tokenizer
from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams

BAD_WORD_SEQUENCES_MAX = 128
BAD_WORD_TOKENS_MAX = 1024
# Longer texts are refused unread: 8 MB of them would take gigabytes on the way to their tokens.
BAD_WORD_CHARS_MAX = 64 * BAD_WORD_TOKENS_MAX


def check_token_ids(params: SamplingParams, vocab_size: int) -> None:
    """Raise ``InvalidRequest`` for an id that has no logit; it names the field."""
    _check_bounds("stop_token_ids", "stop token id", params.stop_token_ids, vocab_size)
    biased = (token_id for token_id, _ in params.logit_bias)
    _check_bounds("logit_bias", "logit_bias token id", biased, vocab_size)
    allowed = params.allowed_token_ids or ()
    if len(allowed) > vocab_size:  # each is looked at for each token
        raise InvalidRequest(
            f"allowed_token_ids has {len(allowed)} ids, more than the vocabulary of {vocab_size}",
            param="allowed_token_ids",
        )
    _check_bounds("allowed_token_ids", "allowed token id", allowed, vocab_size)


def check_some_token_is_left(request: Request, vocab_size: int) -> None:
    """Raise ``InvalidRequest`` if at some place the request might rule out every token there is."""
    params = request.params
    forbidden = {word[-1] for word in request.bad_word_ids}
    if params.min_tokens:
        forbidden |= request.stop_token_ids
        if request.eos_token_id is not None:
            forbidden.add(request.eos_token_id)
    if params.allowed_token_ids is None:
        num_left = vocab_size - len(forbidden)
        field = "stop_token_ids"
    else:
        num_left = len(set(params.allowed_token_ids) - forbidden)
        field = "allowed_token_ids"
    if num_left < 1:
        raise InvalidRequest(
            f"{field} leaves no token to generate beside those that bad_words and min_tokens"
            f" ({params.min_tokens}) forbid",
            param=field,
        )


def bad_word_ids(words: Collection[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """The sequences of ids that no answer may contain, each once.

    A word in a running text comes after a space, which many vocabularies make part of its first
    token; at the beginning of a text it does not. So a word has two spellings, and the one after a
    space counts where only the first of its tokens differs: where it is longer, the space is a
    token of its own and the bare spelling is found behind it.
    """
    num_chars = sum(map(len, words))
    if num_chars > BAD_WORD_CHARS_MAX:
        raise InvalidRequest(
            f"bad_words has {num_chars} characters; at most {BAD_WORD_CHARS_MAX} are taken",
            param="bad_words",
        )
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = word.lstrip() or word
        alone = _encode(bare, tokenizer)
        found[alone] = None
        spaced = _encode(f" {bare}", tokenizer)
        if len(spaced) == len(alone) and spaced[:1] != alone[:1]:
            found[spaced] = None
    sequences = tuple(ids for ids in found if ids)
    num_tokens = sum(map(len, sequences))
    if len(sequences) > BAD_WORD_SEQUENCES_MAX or num_tokens > BAD_WORD_TOKENS_MAX:
        raise InvalidRequest(
            f"bad_words makes {len(sequences)} sequences of {num_tokens} tokens together; at most"
            f" {BAD_WORD_SEQUENCES_MAX} and {BAD_WORD_TOKENS_MAX} are taken",
            param="bad_words",
        )
    return sequences


def _encode(text: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def _check_bounds(field: str, what: str, ids: Iterable[int], vocab_size: int) -> None:
    for token_id in ids:
        if token_id >= vocab_size:
            raise InvalidRequest(
                f"{what} {token_id} is outside the vocabulary of {vocab_size}", param=field
            )
