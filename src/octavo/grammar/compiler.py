# SPDX-License-Identifier: Apache-2.0
"""From what a request asks for to a grammar that its sequences can be started on."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import llguidance

from octavo.grammar.closing import Closer
from octavo.grammar.constraint import ANSWER_TRIES, GrammarConstraint
from octavo.grammar.limits import GrammarLimits
from octavo.grammar.sources import param_of, to_grammar
from octavo.grammar.stats import GrammarStats
from octavo.grammar.vocabulary import Vocabulary
from octavo.types.errors import EngineOverloaded, GrammarFailed, InvalidRequest, OctavoError
from octavo.types.ports import Clock, Tokenizer
from octavo.types.structured_outputs import StructuredOutputs

GRAMMARS_KEPT = 128
COMPILATIONS_MAX = 2  # at once; each takes one CPU
ENDING_WIDTHS = (1, 4, 12)  # of the beams for an ending, where one must be known
ENDING_TRIES = 1200  # states for each beam: 0.1 s
ENDING_TOKENS_MAX = 1024
ENDING_SHORT = 4  # tokens of an ending for which nothing shorter is looked for
MESSAGE_MAX = 300  # characters of the library's words that a refusal repeats


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGrammar:
    """``types.ports.Grammar`` for the requests with this stop set.

    ``ending`` completes an empty text; None: none was found, and ``num_tokens_max`` may not be
    given. ``end_id`` stands for the end where a text must not go on.
    """

    matcher: llguidance.LLMatcher = field(repr=False)
    vocab: Vocabulary = field(repr=False)
    limits: GrammarLimits
    stats: GrammarStats
    cpu_clock: Clock
    ending: tuple[int, ...] | None = field(default=None, repr=False)
    stop_ids: frozenset[int] = frozenset()
    end_id: int | None = None

    def start(self, *, num_tokens_max: int | None = None) -> GrammarConstraint:
        constraint = GrammarConstraint(
            self.matcher.deep_copy(),
            self.vocab,
            stop_ids=self.stop_ids,
            stats=self.stats,
            clock=self.cpu_clock,
            mask_s_max=self.limits.mask_s_max,
        )
        if num_tokens_max is not None:
            if self.ending is None or self.end_id is None or len(self.ending) > num_tokens_max:
                raise GrammarFailed(f"no ending of at most {num_tokens_max} tokens is known")
            constraint.close_in_time(
                Closer(self.vocab, num_tries=ANSWER_TRIES),
                self.ending,
                num_tokens=num_tokens_max,
                end_id=self.end_id,
            )
        return constraint


class GrammarCompiler:
    """Compiles within budgets, and keeps the last grammars: most requests of a service ask for the
    same few. Thread-safe. Belongs into admission: it may take seconds, but never the GIL for long.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        limits: GrammarLimits = GrammarLimits(),  # noqa: B008 (frozen)
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.thread_time,
    ) -> None:
        self.stats = GrammarStats()
        self._tokenizer = tokenizer
        self._limits = limits
        self._clock = clock
        self._cpu_clock = cpu_clock  # of the thread that asks: one that has to wait is not slow
        self._vocab = Vocabulary(tokenizer)
        self._lock = threading.Lock()  # guards the cache and the counts
        self._kept: OrderedDict[StructuredOutputs, CompiledGrammar] = OrderedDict()
        self._slots = threading.BoundedSemaphore(COMPILATIONS_MAX)

    def compile(
        self, wish: StructuredOutputs, *, stop_ids: frozenset[int], num_tokens: int
    ) -> CompiledGrammar:
        """A grammar for a request whose answer ends by one of ``stop_ids`` and has at most
        ``num_tokens`` tokens.

        Raises ``InvalidRequest`` that names the field and says why: no grammar, none that the
        library has, too large, too slow, or no room to close in time. ``EngineOverloaded`` when the
        grammars of others leave no room to compile it.
        """
        grammar = self._reuse(wish)
        if grammar is None:
            grammar = self._compile(wish)
        grammar = replace(grammar, stop_ids=stop_ids, end_id=self._end_id(stop_ids))
        if wish.closes_in_time:
            _check_closes(grammar, num_tokens, param_of(wish))
        return grammar

    def _reuse(self, wish: StructuredOutputs) -> CompiledGrammar | None:
        with self._lock:
            grammar = self._kept.get(wish)
            if grammar is not None:
                self._kept.move_to_end(wish)
                self.stats.num_reused += 1
            return grammar

    def _compile(self, wish: StructuredOutputs) -> CompiledGrammar:
        try:
            text = to_grammar(wish, self._limits)
            _ = self._vocab.ll  # once per engine, and not on the account of the first grammar
            start = self._clock()
            grammar = self._within_budget(lambda: self._build(text, wish), param_of(wish))
        except OctavoError:
            with self._lock:
                self.stats.num_refused += 1
            raise
        with self._lock:
            self.stats.num_compiled += 1
            self.stats.compile_s += self._clock() - start
            self._kept[wish] = grammar
            while len(self._kept) > GRAMMARS_KEPT:
                self._kept.popitem(last=False)
        return grammar

    def _build(self, text: str, wish: StructuredOutputs) -> CompiledGrammar:
        limits, param = self._limits, param_of(wish)
        matcher = llguidance.LLMatcher(
            self._vocab.ll, text, log_level=0, limits=_library_limits(limits)
        )
        if matcher.is_error():
            raise _refused(matcher.get_error(), param)
        probe = matcher.deep_copy()
        mask = probe.compute_bitmask()
        if probe.is_error():
            raise _refused(probe.get_error(), param)
        if int.from_bytes(mask, "little") & ((1 << self._vocab.size) - 1) == 0:
            raise InvalidRequest(f"{param} allows nothing but the empty text", param=param)
        return CompiledGrammar(
            matcher,
            self._vocab,
            limits,
            self.stats,
            self._cpu_clock,
            ending=self._ending(matcher, wish),
        )

    def _ending(
        self, matcher: llguidance.LLMatcher, wish: StructuredOutputs
    ) -> tuple[int, ...] | None:
        """The shortest that is found, where one is needed."""
        if not wish.closes_in_time:
            return None
        closer = Closer(self._vocab, num_tries=ENDING_TRIES * len(ENDING_WIDTHS))
        best: tuple[int, ...] | None = None
        for width in ENDING_WIDTHS:
            most = ENDING_TOKENS_MAX if best is None else len(best) - 1
            if best is None or len(best) > ENDING_SHORT:
                found = closer.find(
                    matcher, num_tokens_max=most, width=width, num_tries=ENDING_TRIES
                )
                best = best if found is None else found
        return best

    def _within_budget(self, work: Callable[[], CompiledGrammar], param: str) -> CompiledGrammar:
        """Run ``work`` in a thread of its own and wait for ``compile_s_max`` at most.

        A thread cannot be ended from outside: one that takes longer is left behind, goes on until
        the library's own limits stop it, and holds its slot till then.
        """
        seconds = self._limits.compile_s_max
        if not self._slots.acquire(timeout=seconds):  # others' doing, and not this caller's mistake
            message = f"{param}: too many grammars are being compiled"
            raise EngineOverloaded(message, retry_after_s=math.ceil(seconds))
        job = _Job(work, self._slots.release)
        job.start()
        if not job.done.wait(seconds):
            raise InvalidRequest(
                f"{param} takes more than {seconds:g} s to compile; make it simpler", param=param
            )
        if job.error is not None:
            raise job.error
        return job.result()

    def _end_id(self, stop_ids: frozenset[int]) -> int | None:
        return min(stop_ids, default=self._tokenizer.eos_token_id)


class _Job(threading.Thread):
    """One piece of work, its result or its error."""

    def __init__(self, work: Callable[[], CompiledGrammar], release: Callable[[], None]) -> None:
        super().__init__(name="octavo-grammar", daemon=True)
        self.done = threading.Event()
        self.error: Exception | None = None
        self._work = work
        self._release = release
        self._results: list[CompiledGrammar] = []

    def result(self) -> CompiledGrammar:
        return self._results[0]

    def run(self) -> None:
        try:
            self._results.append(self._work())
        except Exception as error:
            self.error = error
        finally:
            self._release()
            self.done.set()


def _library_limits(limits: GrammarLimits) -> llguidance.LLParserLimits:
    return llguidance.LLParserLimits(
        max_items_in_row=limits.row_items_max,
        initial_lexer_fuel=limits.lexer_fuel_max,
        step_lexer_fuel=limits.step_fuel_max,
        step_max_items=limits.step_items_max,
        max_lexer_states=limits.lexer_states_max,
        max_grammar_size=limits.symbols_max,
        verbose_errors=False,
    )


def _refused(message: str, param: str) -> InvalidRequest:
    text = " ".join(message.replace("<non-verbose/>", "").split())
    if text.startswith("NoExtension"):
        text = "no text satisfies it"
    short = text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]}..."
    return InvalidRequest(f"{param} cannot be compiled: {short}", param=param)


def _check_closes(grammar: CompiledGrammar, num_tokens: int, param: str) -> None:
    if grammar.ending is None or grammar.end_id is None:
        raise InvalidRequest(
            f"{param} has no ending that is found quickly, so closes_in_time cannot be kept",
            param="structured_outputs.closes_in_time",
        )
    if len(grammar.ending) > num_tokens:
        raise InvalidRequest(
            f"max_tokens leaves {num_tokens} tokens; a complete answer by {param} takes"
            f" {len(grammar.ending)} or more",
            param="max_tokens",
        )
