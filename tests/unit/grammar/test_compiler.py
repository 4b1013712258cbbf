# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from fakes import ByteTokenizer
from grammarkit import accepts, compiled
from octavo.grammar.compiler import GRAMMARS_KEPT, GrammarCompiler
from octavo.grammar.limits import GrammarLimits
from octavo.types.errors import EngineOverloaded, GrammarFailed, InvalidRequest


def test_a_grammar_is_compiled_once():
    compiler = GrammarCompiler(ByteTokenizer())
    first = compiled(compiler, regex="[a-z]+")
    second = compiled(compiler, regex="[a-z]+", stop_ids=frozenset({10}))
    assert first.matcher is second.matcher
    assert (first.stop_ids, second.stop_ids) == (frozenset({257, 258}), frozenset({10}))
    assert (compiler.stats.num_compiled, compiler.stats.num_reused) == (1, 1)
    assert compiled(compiler, regex="[a-z]+", closes_in_time=True).ending == (97,)
    assert compiler.stats.num_compiled == 2


def test_the_oldest_grammar_gives_way():
    compiler = GrammarCompiler(ByteTokenizer())
    for number in range(GRAMMARS_KEPT):
        compiled(compiler, regex=f"a{{{number + 1}}}")
        compiled(compiler, regex="b")  # used all the time, so it stays
    assert compiler.stats.num_compiled == GRAMMARS_KEPT + 1
    compiled(compiler, regex="b")
    assert compiler.stats.num_compiled == GRAMMARS_KEPT + 1
    compiled(compiler, regex="a{1}")
    assert compiler.stats.num_compiled == GRAMMARS_KEPT + 2


def test_time_is_limited():
    limits = GrammarLimits(compile_s_max=1e-6)
    compiler = GrammarCompiler(ByteTokenizer(), limits=limits)
    words = "|".join(f"word{i}" for i in range(10_000))
    with pytest.raises(InvalidRequest, match="more than 1e-06 s to compile") as error:
        compiled(compiler, regex=words)
    assert error.value.param == "structured_outputs.regex"
    assert compiler.stats.num_refused == 1
    assert not compiler._kept


def test_compilations_at_once_are_limited():
    compiler = GrammarCompiler(ByteTokenizer(), limits=GrammarLimits(compile_s_max=0.05))
    gate = threading.Event()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="more than"):
            compiler._within_budget(gate.wait, "field")  # type: ignore[arg-type]
    with pytest.raises(EngineOverloaded, match="too many grammars") as error:
        compiled(compiler, regex="a")
    assert error.value.retry_after_s == 1
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "octavo-grammar":
            thread.join(5)
    assert accepts(compiled(compiler, regex="a"), "a")


def test_a_refusal_is_one_line_and_is_not_remembered():
    compiler = GrammarCompiler(ByteTokenizer())
    for _ in range(2):
        with pytest.raises(InvalidRequest) as error:
            compiled(compiler, grammar="start: " + "nonsense " * 500)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 500
    assert compiler.stats.num_refused == 2


def test_threads_share_one_compiler():
    compiler = GrammarCompiler(ByteTokenizer())
    results: list[bool] = []

    def use(number: int) -> None:
        grammar = compiled(compiler, regex=f"[a-z]{{{number % 4 + 1}}}")
        results.append(accepts(grammar, "a" * (number % 4 + 1)))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 16


def test_a_grammar_without_a_known_ending_does_not_start_with_a_limit():
    grammar = compiled(regex="[a-z]{5}")
    with pytest.raises(GrammarFailed, match="no ending"):
        grammar.start(num_tokens_max=10)
    grammar = compiled(regex="[a-z]{5}", closes_in_time=True)
    with pytest.raises(GrammarFailed, match="at most 4 tokens"):
        grammar.start(num_tokens_max=4)


def test_a_model_without_any_end_cannot_close():
    class Endless(ByteTokenizer):
        eos_token_id = None
        stop_token_ids = frozenset()

    compiler = GrammarCompiler(Endless())
    assert compiled(compiler, regex="[a-z]+", stop_ids=frozenset())
    with pytest.raises(InvalidRequest) as error:
        compiled(compiler, regex="[a-z]+", stop_ids=frozenset(), closes_in_time=True)
    assert error.value.param == "structured_outputs.closes_in_time"


def test_a_grammar_that_is_too_slow_ends_its_sequence_only():
    now = iter(range(10_000))
    compiler = GrammarCompiler(ByteTokenizer(), cpu_clock=lambda: float(next(now)))
    grammar = replace(compiled(compiler, regex="[a-z]+"), limits=GrammarLimits(mask_s_max=0.5))
    with pytest.raises(GrammarFailed, match=r"one mask took 1.00 s, more than 0.5 s"):
        grammar.start()
