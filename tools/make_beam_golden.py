# SPDX-License-Identifier: Apache-2.0
"""Record what the beam search of transformers finds, and how clear its decisions were.

    pip install torch transformers gguf accelerate
    python tools/make_beam_golden.py MODEL.gguf tests/data/golden

The weights are the file's own, dequantised, in float32. The folder must hold ``smollm2.json``,
which gives the prompts; ``beam_search.json`` is written beside it.

Which beams go on depends on the prompt, the width and the ending tokens, but not on the length
penalty nor on when to stop: so one table of offers serves all cases of a search.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

WIDTHS = (2, 4)
PENALTIES = (1.0, 0.5, 2.0, 0.0)
STOPPINGS: tuple[bool | str, ...] = (True, False, "never")
NUM_TOKENS = 24
NEWLINE, COMMA, PERIOD, END = 198, 28, 30, 2
# (item of smollm2.json, tokens that end an answer): from answers of one token to none that ends.
LONG = ((0, (NEWLINE, PERIOD)), (2, (END,)), (3, (COMMA,)))
# Short searches in running text, where some have clear decisions only: {width: tokens}. The wider
# and the longer, the rarer. Prompts are the beginnings of pieces of the text.
SHORT = {2: 4, 4: 2}
SHORT_ENDS, PROMPT_MIN, PROMPT_MAX = (COMMA, PERIOD), 8, 32
NUM_SHORT, NUM_TRIED = 3, 200  # of each width
LOGPROB_BOUND = 0.5 / math.sqrt(2)  # as in tests/golden/test_golden.py

Path_ = tuple[int, ...]
Offers = list[tuple[int, int, float]]  # (beam, token, logprob), the best sums first


@dataclass
class Step:
    offers: Offers
    going_on: list[tuple[int, int]]  # (beam, token)


@dataclass
class Search:
    prompt_ids: list[int]
    width: int
    ends: tuple[int, ...]
    max_tokens: int
    steps: list[Step] = field(default_factory=list)

    @property
    def num_ranked(self) -> int:
        return max(2, 1 + len(self.ends)) * self.width


@dataclass
class Clearness:
    """The smallest gap of any decision, in units of what rounding may do to that gap.

    A sum of logprobs weighs each token by 1 / length ** penalty. Tokens that both sides share
    err alike; so the error of a difference is that of one logprob times the root of the squares
    of the weights by which the sides differ at each token.
    """

    least: float = math.inf

    def compare(
        self, better: tuple[Path_, float, float], worse: tuple[Path_, float, float]
    ) -> None:
        """Each side is (tokens, score, weight)."""
        (a, score_a, weight_a), (b, score_b, weight_b) = better, worse
        pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
        shared = sum(1 for _ in pairs)
        squares = (len(a) - shared) * weight_a**2 + (len(b) - shared) * weight_b**2
        squares += shared * (weight_a - weight_b) ** 2
        if squares:
            gap = abs(score_a - score_b)
            self.least = min(self.least, gap / (LOGPROB_BOUND * math.sqrt(squares)))


class Rehearsal:
    """The search once more over recorded offers, to see every decision. Plain rather than quick."""

    def __init__(self, search: Search, penalty: float, stopping: bool | str) -> None:
        self.search, self.penalty, self.stopping = search, penalty, stopping
        self.clearness = Clearness()
        self.answers: list[tuple[Path_, float, float]] = []

    def run(self) -> None:
        beams: list[tuple[Path_, float]] = [((), 0.0)]
        for number, step in enumerate(self.search.steps, 1):
            ranked = [
                ((*beams[beam][0], token), beams[beam][1] + logprob)
                for beam, token, logprob in step.offers
            ]
            beams = self._select(ranked)
            is_last = number == self.search.max_tokens
            self._collect(ranked, number, is_last)
            if is_last or self._stops(beams[0], number):
                break
        for better, worse in itertools.pairwise(self.answers):
            self.clearness.compare(better, worse)

    def _select(self, ranked: list[tuple[Path_, float]]) -> list[tuple[Path_, float]]:
        open_ = [entry for entry in ranked if entry[0][-1] not in self.search.ends]
        width = self.search.width
        self.clearness.compare((*open_[width - 1], 1.0), (*open_[width], 1.0))
        return open_[:width]

    def _collect(self, ranked: list[tuple[Path_, float]], length: int, is_last: bool) -> None:
        width = self.search.width
        for rank, (tokens, total) in enumerate(ranked[: self.search.num_ranked]):
            is_end = is_last or tokens[-1] in self.search.ends
            if not is_end:
                continue
            rival = ranked[width] if rank < width else ranked[width - 1]
            self.clearness.compare((tokens, total, 1.0), (*rival, 1.0))
            if rank < width:
                weight = 1 / length**self.penalty
                self.answers.append((tokens, total * weight, weight))
        self.answers.sort(key=lambda answer: -answer[1])
        for dropped in self.answers[width:]:
            self.clearness.compare(self.answers[width - 1], dropped)
        del self.answers[width:]

    def _stops(self, best: tuple[Path_, float], length: int) -> bool:
        if len(self.answers) < self.search.width:
            return False
        if self.stopping is True:
            return True
        looks_far = self.stopping == "never" and self.penalty > 0
        weight = 1 / (self.search.max_tokens if looks_far else length) ** self.penalty
        hope = (best[0], best[1] * weight, weight)
        self.clearness.compare(hope, self.answers[-1])
        return hope[1] <= self.answers[-1][1]


def generate(model: Any, search: Search, penalty: float, stopping: bool | str) -> Any:
    prompt = torch.tensor([search.prompt_ids])
    with torch.no_grad():
        return model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            num_beams=search.width,
            num_return_sequences=search.width,
            length_penalty=penalty,
            early_stopping=stopping,
            max_new_tokens=search.max_tokens,
            eos_token_id=list(search.ends),
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )


def answers(result: Any, search: Search) -> list[tuple[Path_, float]]:
    found = []
    rows = zip(result.sequences, result.beam_indices, result.sequences_scores, strict=True)
    for tokens, parents, score in rows:
        length = int((parents >= 0).sum())
        begin = len(search.prompt_ids)
        found.append((tuple(tokens[begin : begin + length].tolist()), score.item()))
    return found


def record(model: Any, search: Search) -> None:
    """Fill in the steps. A strong length penalty makes the search hope to the last step."""
    result = generate(model, search, 10.0, "never")
    totals = torch.tensor([0.0] + [-1e9] * (search.width - 1))
    num_kept = search.num_ranked + search.width  # so that there is something to leave out
    for logprobs in result.scores:
        offers = ranked_offers(logprobs, totals, num_kept)
        open_ = [(beam, token) for beam, token, _ in offers if token not in search.ends]
        going_on = open_[: search.width]
        totals = torch.stack([totals[beam] + logprobs[beam, token] for beam, token in going_on])
        search.steps.append(Step(offers, going_on))


def cases(model: Any, search: Search) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    for penalty, stopping in itertools.product(PENALTIES, STOPPINGS):
        found = answers(generate(model, search, penalty, stopping), search)
        rehearsal = Rehearsal(search, penalty, stopping)
        rehearsal.run()
        assert [answer[0] for answer in rehearsal.answers] == [tokens for tokens, _ in found]
        case = {
            "length_penalty": penalty,
            "early_stopping": stopping,
            "clearness": round(rehearsal.clearness.least, 3),
        }
        yield case, found


def as_json(model: Any, search: Search) -> dict[str, Any]:
    distinct: list[Path_] = []
    rows = []
    for case, found in cases(model, search):
        for tokens, _ in found:
            if tokens not in distinct:
                distinct.append(tokens)
        case["answers"] = [(distinct.index(tokens), round(score, 6)) for tokens, score in found]
        rows.append(case)
    return {
        "prompt_ids": search.prompt_ids,
        "beam_width": search.width,
        "max_tokens": search.max_tokens,
        "end_token_ids": search.ends,
        "steps": [{"offers": step.offers, "going_on": step.going_on} for step in search.steps],
        "answers": distinct,
        "cases": rows,
    }


def ranked_offers(logprobs: Any, totals: Any, num_kept: int) -> Offers:
    """``logprobs`` [beams, vocabulary], ``totals`` [beams]."""
    places = torch.topk((logprobs + totals[:, None]).flatten(), num_kept).indices.tolist()
    offers = []
    for beam, token in (divmod(place, logprobs.shape[1]) for place in places):
        offers.append((beam, token, round(logprobs[beam, token].item(), 6)))
    return offers


def short_prompts(model: Any, text_ids: Sequence[int], width: int) -> list[list[int]]:
    """Beginnings of the text's pieces, those whose first decision is the clearest first."""
    pieces = torch.tensor(text_ids).reshape(-1, PROMPT_MAX)
    with torch.no_grad():
        logprobs = torch.log_softmax(model(pieces).logits, dim=-1)
    found = []
    for piece, length in itertools.product(range(len(pieces)), range(PROMPT_MIN, PROMPT_MAX + 1)):
        search = Search(pieces[piece, :length].tolist(), width, SHORT_ENDS, SHORT[width])
        first = logprobs[piece, length - 1 : length]
        offers = ranked_offers(first, torch.zeros(1), search.num_ranked + width)
        search.steps = [Step(offers, [])]
        found.append((clearness_of_all(search)[0], search.prompt_ids))
    return [prompt_ids for _, prompt_ids in sorted(found, reverse=True)]


def clearness_of_all(search: Search) -> list[float]:
    """Of every case, the least first."""
    rehearsals = [Rehearsal(search, *pair) for pair in itertools.product(PENALTIES, STOPPINGS)]
    for rehearsal in rehearsals:
        rehearsal.run()
    return sorted(rehearsal.clearness.least for rehearsal in rehearsals)


def short_searches(model: Any, text_ids: Sequence[int], width: int) -> list[Search]:
    """The clearest of those that look promising, by the case in the middle."""
    searches = []
    for prompt_ids in short_prompts(model, text_ids, width)[:NUM_TRIED]:
        search = Search(prompt_ids, width, SHORT_ENDS, SHORT[width])
        record(model, search)
        searches.append((clearness_of_all(search)[len(PENALTIES) * len(STOPPINGS) // 2], search))
    searches.sort(key=lambda pair: -pair[0])
    print(width, [round(clearness, 2) for clearness, _ in searches[:20]], file=sys.stderr)
    return [search for _, search in searches[:NUM_SHORT]]


def main(path: Path, folder: Path) -> None:
    source = json.loads((folder / "smollm2.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    searches = []
    for (item, ends), width in itertools.product(LONG, WIDTHS):
        search = Search(source["items"][item]["prompt_ids"], width, ends, NUM_TOKENS)
        record(model, search)
        searches.append(search)
    for width in WIDTHS:
        searches += short_searches(model, source["ppl_ids"], width)
    golden = {
        "how": "tools/make_beam_golden.py: generate() in float32 on the file's dequantised weights",
        "searches": [as_json(model, search) for search in searches],
    }
    text = json.dumps(golden, separators=(",", ":")).replace('{"prompt_ids"', '\n{"prompt_ids"')
    (folder / "beam_search.json").write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
