# SPDX-License-Identifier: Apache-2.0
"""A response as it grows: its items one after the other, and the events that tell of them.

created and in_progress; then for each item: added, deltas, done; at last completed, incomplete or
failed. Events are numbered from 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from octavo.chat.call_tally import CallTally
from octavo.chat.parts import Content, Part, Reasoning, ToolArguments, ToolCall
from octavo.server.errors import ApiError
from octavo.server.openai.logprobs import chat_logprobs
from octavo.server.reply import Ending, Event, Piece, TokenLogprobs, Usage
from octavo.server.responses.output import CallItem, Item, JsonDict, MessageItem, ReasoningItem
from octavo.types.ports import Tokenizer


class ResponseWriter:
    """A ``reply.Writer``. ``head`` is the response's document less what becomes of it.

    ``num_top``: None, or how many alternatives to give for each token of the text.
    """

    def __init__(
        self,
        head: JsonDict,
        tokenizer: Tokenizer,
        *,
        num_top: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._clock = clock
        self._suffix = str(head["id"]).removeprefix("resp_")
        self._num_events = 0
        self._output: list[JsonDict] = []
        self._item: MessageItem | ReasoningItem | CallItem | None = None
        self._tally = CallTally()
        self._document: JsonDict = {}

    def begin(self, usage: Usage) -> Iterable[Event]:
        self._update("in_progress")
        kinds = ("response.created", "response.in_progress")
        return [self._event({"type": kind, "response": self._document}) for kind in kinds]

    def add(self, piece: Piece) -> Iterable[Event]:
        logprobs = self._logprobs(piece.logprobs)
        events: list[Event] = []
        self._tally.add(piece.parts)
        for part in piece.parts:
            events += self._add_part(part, logprobs)
            if isinstance(part, Content):
                logprobs = []
        return list(map(self._event, events))

    def end(self, ending: Ending) -> Iterable[Event]:
        is_cut = ending.finish_reason == "length"
        status = "incomplete" if is_cut else "completed"
        events: list[Event] = []
        if not self._output and self._item is None:  # a client may count on something to read
            events += self._open(self._new_message())
        events += self._close("incomplete" if self._tally.is_within_call else status)
        self._update(
            status,
            completed_at=None if is_cut else int(self._clock()),
            incomplete_details={"reason": "max_output_tokens"} if is_cut else None,
            usage=_usage(ending.usage),
        )
        events.append({"type": f"response.{status}", "response": self._document})
        return list(map(self._event, events))

    def fail(self, error: ApiError) -> Iterable[Event]:
        events = list(self._close("incomplete"))
        self._update("failed", error={"code": "server_error", "message": error.message})
        events.append({"type": "response.failed", "response": self._document})
        return list(map(self._event, events))

    def whole(self) -> JsonDict:
        return self._document

    def _add_part(self, part: Part, logprobs: Sequence[JsonDict]) -> Iterator[Event]:
        item = self._item
        match part:
            case Content(text):
                if not isinstance(item, MessageItem):
                    item = self._new_message()
                    yield from self._open(item)
                yield item.add(text, logprobs)
            case Reasoning(text):
                if not isinstance(item, ReasoningItem):
                    item = ReasoningItem(self._id("rs"), self._num_items)
                    yield from self._open(item)
                yield item.add(text)
            case ToolCall(call_id=call_id, name=name):
                index = self._num_items
                call = CallItem(self._id("fc"), index, call_id=call_id, name=name)
                yield from self._open(call)
            case ToolArguments(text=text) if isinstance(item, CallItem):
                yield item.add(text)

    @property
    def _num_items(self) -> int:
        return len(self._output) + (self._item is not None)

    def _new_message(self) -> MessageItem:
        return MessageItem(self._id("msg"), self._num_items)

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._suffix}_{self._num_items}"

    def _open(self, item: MessageItem | ReasoningItem | CallItem) -> Iterator[Event]:
        """Items have their numbers when they are made, so the one before still counts as open."""
        yield from self._close("completed")
        self._item = item
        yield _about("response.output_item.added", item, "in_progress")
        yield from item.opening()

    def _close(self, status: str) -> Iterator[Event]:
        item, self._item = self._item, None
        if item is None:
            return
        self._output.append(item.document(status))
        yield from item.closing(status)
        yield _about("response.output_item.done", item, status)

    def _event(self, event: Event) -> Event:
        numbered = {**event, "sequence_number": self._num_events}
        self._num_events += 1
        return numbered

    def _update(self, status: str, **changes: object) -> None:
        fixed = {"completed_at": None, "error": None, "incomplete_details": None}
        output = {"output": list(self._output)}
        self._document = {**self._head, "status": status, **fixed, **output, **changes}

    def _logprobs(self, given: Sequence[TokenLogprobs]) -> list[JsonDict]:
        if self._num_top is None or not given:
            return []
        ids, by_id = zip(*given, strict=True)
        entries = chat_logprobs(self._tokenizer, ids, by_id, self._num_top)["content"]
        return entries  # type: ignore[return-value]  # of the shape that it documents


def _about(kind: str, item: Item, status: str) -> Event:
    index = item.place["output_index"]
    return {"type": kind, "output_index": index, "item": item.document(status)}


def _usage(usage: Usage) -> JsonDict:
    return {
        "input_tokens": usage.num_input,
        "input_tokens_details": {"cached_tokens": usage.num_cached, "cache_write_tokens": 0},
        "output_tokens": usage.num_output,
        "output_tokens_details": {"reasoning_tokens": usage.num_reasoning},
        "total_tokens": usage.num_input + usage.num_output,
    }
