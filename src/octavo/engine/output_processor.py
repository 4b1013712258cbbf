# SPDX-License-Identifier: Apache-2.0
"""Tokens to text, stop rules, and what the caller gets to see of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from octavo.scheduler.scheduler import Progress
from octavo.tokenizer.detokenizer import Detokenizer
from octavo.types.outputs import CompletionOutput, FinishReason, Logprob, RequestOutput
from octavo.types.ports import Tokenizer
from octavo.types.sampling_params import OutputKind
from octavo.types.sequence import Sequence, SequenceGroup
from octavo.types.step import TokenLogprobs

LogprobDict = dict[int, Logprob]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a sequence ends now; ``stop_reason`` is the stop string or the stop id, or None."""

    reason: FinishReason
    stop_reason: int | str | None = None


class SampleText:
    """The visible side of one sequence: text, logprobs, and how much of them was already shown."""

    __slots__ = (
        "_detokenizer",
        "_end_shown",
        "_params",
        "_request",
        "_shown_tokens",
        "_tokenizer",
        "cumulative_logprob",
        "logprobs",
        "prompt_logprobs",
    )

    def __init__(self, seq: Sequence, tokenizer: Tokenizer) -> None:
        self._request = seq.group.request
        params = self._params = self._request.params
        self._tokenizer = tokenizer
        self._detokenizer: Detokenizer | None = None
        if params.detokenize:
            self._detokenizer = Detokenizer(
                tokenizer,
                skip_special_tokens=params.skip_special_tokens,
                stop=params.stop,
                include_stop=params.include_stop_str_in_output,
                min_tokens=params.min_tokens,
                keep_special_ids=params.keep_special_ids,
            )
        self._shown_tokens = 0
        self._end_shown = False
        self.cumulative_logprob = 0.0
        self.logprobs: list[LogprobDict] | None = None if params.logprobs is None else []
        self.prompt_logprobs: list[LogprobDict | None] | None = (
            None if params.prompt_logprobs is None else [None]
        )

    @property
    def shows_nothing_yet(self) -> bool:
        return self._shown_tokens == 0

    def has_news(self, seq: Sequence) -> bool:
        """Is there a token, or an end, that was not shown yet?"""
        return seq.num_outputs > self._shown_tokens or seq.is_finished is not self._end_shown

    def accept(self, seq: Sequence, progress: Progress) -> Verdict | None:
        """Take in what a step gave; the sequence already has the token. Says whether it ends here.

        Rules in their order: end of sequence, stop ids, stop strings, grammar, length. So a token
        that completes a stop string and is also the last allowed one finishes as a stop.
        """
        result = progress.result
        if result.scored and self.prompt_logprobs is not None:
            self._score_prompt(seq, progress)
        if result.token_id is None:
            return None
        if result.logprobs is not None:
            self.cumulative_logprob += result.logprobs.logprob
            if self.logprobs is not None:
                top = self._params.logprobs or 0
                self.logprobs.append(self._logprob_dict(result.logprobs, top))
        request, token_id, constraint = self._request, result.token_id, seq.constraint
        if constraint is not None and constraint.was_cut and constraint.is_complete:
            if self._detokenizer is not None and not self._ends(token_id):
                self._detokenizer.append(token_id)
            return Verdict(FinishReason.LENGTH)
        if token_id == request.eos_token_id:
            return Verdict(FinishReason.STOP)
        if token_id in request.stop_token_ids:
            if self._params.include_stop_str_in_output and self._detokenizer is not None:
                self._detokenizer.append(token_id)
            return Verdict(FinishReason.STOP, token_id)
        if self._detokenizer is not None:
            matched = self._detokenizer.append(token_id)
            if matched is not None:
                return Verdict(FinishReason.STOP, matched)
        if constraint is not None and constraint.is_complete:
            return Verdict(FinishReason.STOP)
        if seq.num_tokens >= seq.num_tokens_max:
            return Verdict(FinishReason.LENGTH)
        return None

    def _ends(self, token_id: int) -> bool:
        request = self._request
        return token_id == request.eos_token_id or token_id in request.stop_token_ids

    def show(self, seq: Sequence) -> CompletionOutput:
        """The output for the caller, cumulative or new only; marks it as shown."""
        detokenizer = self._detokenizer
        if seq.is_finished and detokenizer is not None:
            detokenizer.finish()  # without effect after a stop string: the text is final already
        is_delta = self._params.output_kind is OutputKind.DELTA
        first_token = self._shown_tokens if is_delta else 0
        self._shown_tokens = seq.num_outputs
        self._end_shown = seq.is_finished
        text, logprobs = "", self.logprobs
        if detokenizer is not None:
            text = detokenizer.take() if is_delta else detokenizer.text
        return CompletionOutput(
            index=seq.sampling.sample_idx,
            text=text,
            token_ids=tuple(seq.token_ids[seq.num_prompt + first_token :]),
            cumulative_logprob=None if logprobs is None else self.cumulative_logprob,
            logprobs=None if logprobs is None else tuple(logprobs[first_token:]),
            finish_reason=None if seq.finish_reason is None else seq.finish_reason.value,
            stop_reason=seq.stop_reason,
        )

    def mute(self) -> None:
        """Give up on the text: its tokenizer failed."""
        self._detokenizer = None

    def _score_prompt(self, seq: Sequence, progress: Progress) -> None:
        """Keep the scores of positions not scored before: a preempted prefill scores some again."""
        assert self.prompt_logprobs is not None
        top = self._params.prompt_logprobs or 0
        for position, scored in enumerate(progress.result.scored, progress.first_scored):
            if position == seq.num_scored:
                self.prompt_logprobs.append(self._logprob_dict(scored, top))
                seq.num_scored += 1

    def _logprob_dict(self, token: TokenLogprobs, num_top: int) -> LogprobDict:
        """The token itself, first, then the ``num_top`` likeliest; so up to ``num_top + 1``
        entries.
        """
        entries = {token.token_id: Logprob(token.logprob, token.rank, self._piece(token.token_id))}
        for rank, (token_id, logprob) in enumerate(token.top[:num_top], 1):
            if token_id not in entries:
                entries[token_id] = Logprob(logprob, rank, self._piece(token_id))
        return entries

    def _piece(self, token_id: int) -> str:
        return self._tokenizer.token_bytes(token_id).decode("utf-8", "replace")


class OutputProcessor:
    """Keeps a ``SampleText`` for every sequence from arrival to end, and builds the outputs."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, SampleText] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, group: SequenceGroup) -> None:
        for seq in group.sequences:
            self._texts[seq.seq_id] = SampleText(seq, self._tokenizer)

    def accept(self, progress: Progress) -> Verdict | None:
        seq = progress.seq
        return self._texts[seq.seq_id].accept(seq, progress)

    def output(self, group: SequenceGroup, error: str | None = None) -> RequestOutput | None:
        """What the caller gets after a step; None when it asked for the end only. Forgets what
        ended.
        """
        request, finished = group.request, group.is_finished
        kind = request.params.output_kind
        waits = kind is OutputKind.FINAL_ONLY or request.params.picks_best
        if waits and not finished:
            return None
        prompt_logprobs = self._texts[group.sequences[0].seq_id].prompt_logprobs
        if prompt_logprobs is not None and kind is OutputKind.DELTA:
            texts = [self._texts[seq.seq_id] for seq in group.sequences]
            if not any(text.shows_nothing_yet for text in texts):
                prompt_logprobs = None  # every sample of the stream has had them
        output = RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt,
            prompt_token_ids=request.prompt_token_ids,
            outputs=self._samples(group),
            finished=finished,
            prompt_logprobs=None if prompt_logprobs is None else tuple(prompt_logprobs),
            num_output_tokens=group.num_outputs,
            num_cached_tokens=group.num_cached_tokens,
            num_truncated_tokens=request.num_truncated_tokens,
            metrics=group.metrics() if finished else None,
            error=error,
        )
        if finished:
            self.forget(group)
        return output

    def _samples(self, group: SequenceGroup) -> tuple[CompletionOutput, ...]:
        """All samples; of a stream, those with something new; under ``best_of`` the best, which are
        then numbered by rank."""
        params = group.request.params
        pairs = [(self._texts[seq.seq_id], seq) for seq in group.sequences]
        if params.output_kind is OutputKind.DELTA:
            return tuple(text.show(seq) for text, seq in pairs if text.has_news(seq))
        if not params.picks_best:
            return tuple(text.show(seq) for text, seq in pairs)
        pairs.sort(key=lambda pair: pair[0].cumulative_logprob, reverse=True)  # stable: ties by idx
        best = (text.show(seq) for text, seq in pairs[: params.n])
        return tuple(replace(sample, index=rank) for rank, sample in enumerate(best))

    def mute(self, group: SequenceGroup) -> None:
        """From now on the group's outputs have ids but no text."""
        for seq in group.sequences:
            self._texts[seq.seq_id].mute()

    def forget(self, group: SequenceGroup) -> None:
        for seq in group.sequences:
            self._texts.pop(seq.seq_id, None)
