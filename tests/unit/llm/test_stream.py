# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.llm.stream import Stream
from octavo.types.outputs import RequestOutput


def output(*, finished: bool) -> RequestOutput:
    return RequestOutput("r", None, (1,), (), finished)


class Source:
    """Gives a batch of outputs per call, and counts how often the request was ended."""

    def __init__(self, *batches: list[RequestOutput]) -> None:
        self.batches = list(batches)
        self.num_ends = 0

    def advance(self) -> list[RequestOutput]:
        if not self.batches:
            raise KeyboardInterrupt
        return self.batches.pop(0)

    def end(self) -> None:
        self.num_ends += 1

    def stream(self) -> Stream:
        return Stream(self.advance, self.end)


def test_outputs_come_one_by_one_until_one_is_finished():
    batches = [output(finished=False)], [], [output(finished=False), output(finished=True)]
    source = Source(*batches)
    stream = source.stream()
    assert [one.finished for one in stream] == [False, False, True]
    assert list(stream) == []
    stream.close()
    assert source.num_ends == 1


def test_a_stream_closed_or_dropped_before_its_first_output_ends_the_request():
    source = Source([output(finished=True)])
    source.stream()  # nobody keeps it
    stream = source.stream()
    stream.close()
    assert source.num_ends == 2
    assert list(stream) == []


def test_whatever_stops_the_iteration_ends_the_request():
    source = Source([output(finished=False)])
    stream = source.stream()
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert source.num_ends == 1
