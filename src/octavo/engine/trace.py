# SPDX-License-Identifier: Apache-2.0
"""The last things that happened, in a ring of fixed size, and their export for a trace viewer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from octavo.types.outputs import Timeline
from octavo.types.ports import Clock
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus

EVENTS_MAX = 16384  # about 3 MB; some minutes of a busy engine
ENGINE_TRACK = 0  # steps; a request's track is 1 + its seniority

JsonDict = dict[str, object]


@dataclass(frozen=True, slots=True)
class Event:
    """``start_s`` on the engine's clock; ``duration_s`` None for a moment."""

    name: str
    category: Literal["step", "sequence", "request", "blocks"]
    start_s: float
    duration_s: float | None
    track: int
    args: tuple[tuple[str, int | float | str], ...] = ()


class Trace:
    """A ring of ``capacity`` events; the oldest give way. 0 keeps none.

    One thread records; another may copy the ring at any time.
    """

    def __init__(self, capacity: int = EVENTS_MAX) -> None:
        self._events: deque[Event] = deque(maxlen=capacity)
        self.num_recorded = 0

    def __len__(self) -> int:
        return len(self._events)

    def record(self, event: Event) -> None:
        self._events.append(event)
        self.num_recorded += 1

    def events(self) -> list[Event]:
        """A copy, oldest first."""
        while True:
            try:
                return list(self._events)
            except RuntimeError:  # it grew while it was copied; a copy takes less than a step
                continue

    def requests_of(self, seq_ids: Iterable[int]) -> dict[int, str]:
        """The requests whose sequences these are or were, as far back as the ring goes. O(ring)."""
        wanted, names = set(seq_ids), {}
        for event in self.events() if wanted else ():
            if event.category == "sequence":
                args = dict(event.args)
                if args["seq_id"] in wanted:
                    names[int(args["seq_id"])] = str(args["request_id"])
        return names

    def to_chrome(self) -> JsonDict:
        """The ring as a document of the Trace Event Format: times in microseconds."""
        events = self.events()
        shown: list[JsonDict] = [_name_of("process_name", ENGINE_TRACK, "octavo")]
        shown.append(_name_of("thread_name", ENGINE_TRACK, "steps"))
        return {
            "traceEvents": [*shown, *_track_names(events), *map(_chrome_event, events)],
            "displayTimeUnit": "ms",
            "otherData": {"num_dropped": self.num_recorded - len(events)},
        }


def _track_names(events: Iterable[Event]) -> list[JsonDict]:
    names: dict[int, str] = {}
    for event in events:
        request_id = dict(event.args).get("request_id")
        if request_id is not None:
            names.setdefault(event.track, str(request_id))
    return [_name_of("thread_name", track, name) for track, name in names.items()]


def _name_of(kind: str, track: int, name: str) -> JsonDict:
    return {"name": kind, "ph": "M", "pid": 1, "tid": track, "args": {"name": name}}


def _chrome_event(event: Event) -> JsonDict:
    shape: JsonDict = {"ph": "i", "s": "t"}
    if event.duration_s is not None:
        shape = {"ph": "X", "dur": event.duration_s * 1e6}
    return {
        "name": event.name,
        "cat": event.category,
        "ts": event.start_s * 1e6,
        "pid": 1,
        "tid": event.track,
        "args": dict(event.args),
        **shape,
    }


class Lifecycle:
    """Follows one request through its states: a span in the trace for each, and the sums.

    A request is in the state of its busiest sequence: running before swapped before the others.
    """

    __slots__ = ("_clock", "_group", "_spent", "_state", "_state_time", "_trace")

    def __init__(self, group: SequenceGroup, trace: Trace, clock: Clock) -> None:
        self._group = group
        self._trace = trace
        self._clock = clock
        self._state = "queue"
        self._state_time = group.arrival_time
        self._spent = dict.fromkeys(("queue", "prefill", "decode", "swapped", "stalled"), 0.0)

    def moved(self, seq: Sequence, before: SequenceStatus) -> None:
        """The group's ``observer``."""
        now = self._clock()
        self._trace.record(
            Event(
                f"{before.value} -> {seq.status.value}",
                "sequence",
                now,
                None,
                1 + self._group.seniority,
                (("request_id", self._group.request_id), ("seq_id", seq.seq_id)),
            )
        )
        self.update(now)

    def update(self, now: float) -> None:
        """Enter the state that the group is in by now; a no-op while it stays the same."""
        state = self._current()
        if state == self._state:
            return
        start, self._state_time = self._state_time, now
        before, self._state = self._state, state
        self._spent[before] += now - start
        args = (("request_id", self._group.request_id),)
        track = 1 + self._group.seniority
        self._trace.record(Event(before, "request", start, now - start, track, args))

    def timeline(self) -> Timeline:
        return Timeline(**{f"{name}_s": spent for name, spent in self._spent.items()})

    def _current(self) -> str:
        statuses = {seq.status.value for seq in self._group.sequences}
        if "running" in statuses:
            return "prefill" if self._group.first_token_time is None else "decode"
        if any(status.startswith("swap") for status in statuses):
            return "swapped"
        if "preempted" in statuses:
            return "stalled"
        return "queue" if "waiting" in statuses else "finished"
