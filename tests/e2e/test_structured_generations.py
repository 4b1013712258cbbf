# SPDX-License-Identifier: Apache-2.0
"""The demo model at temperature 1 under many schemas: every answer is valid, most of them closed
because their tokens ran out. ``tools/structured_generations.py`` does the same two hundred times.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams, StructuredOutputs
from octavo.grammar.compiler import GrammarCompiler
from structured_generations import SCHEMAS, answers, fault_of, make_cases

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def llm(smollm2_path):
    with LLM(str(smollm2_path), num_blocks=256) as llm:
        yield llm


def test_every_answer_is_valid(llm):
    cases = make_cases(len(SCHEMAS), 17, GrammarCompiler(llm.get_tokenizer()))
    results = answers(llm, cases)
    faults = [fault_of(case, text) for case, (text, _) in zip(cases, results, strict=True)]
    assert faults == [None] * len(cases)
    assert sum(reason == "length" for _, reason in results) >= 5


def test_the_judge_has_teeth(llm):
    """Without a grammar the same model does not do it."""
    cases = make_cases(3, 17, GrammarCompiler(llm.get_tokenizer()))
    params = [case.params.clone(structured_outputs=None, max_tokens=24) for case in cases]
    outputs = llm.generate(["Write JSON.\n"] * 3, params, use_tqdm=False)
    faults = [fault_of(c, o.outputs[0].text) for c, o in zip(cases, outputs, strict=True)]
    assert None not in faults


def test_a_constrained_answer_is_the_same_beside_others_and_after_preemption(llm, smollm2_path):
    wish = StructuredOutputs(json=SCHEMAS["an order"], closes_in_time=True)
    params = [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=48, structured_outputs=wish)
        for seed in range(4)
    ]
    alone = [llm.generate("An order:", p, use_tqdm=False)[0].outputs[0].text for p in params]
    together = llm.generate(["An order:"] * 4, params, use_tqdm=False)
    assert [output.outputs[0].text for output in together] == alone
    with LLM(str(smollm2_path), num_blocks=5, block_size=16, admission_reserve="none") as tight:
        squeezed = tight.generate(["An order:"] * 4, params, use_tqdm=False)
        assert tight._alive().engine.stats().preemptions_total > 0
    assert [output.outputs[0].text for output in squeezed] == alone


def test_the_program_of_the_readme_runs(smollm2_path):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (program,) = [program for program in programs if "StructuredOutputs" in program]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "age" in done.stdout
