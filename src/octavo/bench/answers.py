# SPDX-License-Identifier: Apache-2.0
"""Reading a streamed answer in OpenAI's two wire formats into a ``Record``."""

from __future__ import annotations

import json
from typing import Any

from octavo.bench.http_reply import EventReader
from octavo.bench.records import Record

REFUSAL_BYTES_MAX = 64 * 1024
MESSAGE_CHARACTERS_MAX = 500


class AnswerReader:
    """Fills one record from the body of one reply. Hostile bytes become the record's error."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._events = EventReader()
        self._texts: list[str] = []
        self._refusal = b""
        self._is_over = False

    def take(self, now_s: float, body: bytes) -> None:
        """More of the body, which arrived at ``now_s``. Raises ``BadReply``."""
        if len(self._refusal) < REFUSAL_BYTES_MAX:
            self._refusal += body if not self._texts else b""
        for event in self._events.feed(body):
            self._take_event(now_s, event)

    def close(self, status: int, now_s: float) -> None:
        """The reply is whole, with this status: decide whether it was an answer."""
        record = self._record
        record.text = "".join(self._texts)
        if not record.is_counted:  # a guess: most servers send a chunk per token
            record.num_output_tokens = len(record.token_times_s)
        if status != 200:
            record.error = f"status {status}: {message_of(self._refusal)}"
        elif record.error is None and not self._is_over:
            record.error = "the stream ended without a finish reason"
        elif record.error is None and record.num_output_tokens == 0:
            record.error = "the answer has no tokens"
        if record.error is not None:
            record.end_s = now_s

    def _take_event(self, now_s: float, event: bytes) -> None:
        if event == b"[DONE]":
            return
        try:
            chunk = json.loads(event)
        except (ValueError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            self._record.error = f"a chunk is no JSON object: {event[:80]!r}"
        elif "error" in chunk:
            self._record.error = message_of(event)
        else:
            self._take_chunk(now_s, chunk)

    def _take_chunk(self, now_s: float, chunk: dict[str, Any]) -> None:
        record = self._record
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            text = _text_of(choices[0])
            if text:
                self._texts.append(text)
                record.token_times_s.append(now_s)
            if text or choices[0].get("finish_reason"):
                record.end_s = now_s
            self._is_over = self._is_over or bool(choices[0].get("finish_reason"))
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._take_usage(usage)

    def _take_usage(self, usage: dict[str, Any]) -> None:
        prompt, answer = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if isinstance(prompt, int) and isinstance(answer, int) and min(prompt, answer) >= 0:
            self._record.num_prompt_tokens = prompt
            self._record.num_output_tokens = answer
            self._record.is_counted = True


def _text_of(choice: dict[str, Any]) -> str:
    """Text of a completion, or content or reasoning of a chat; a call's arguments, too."""
    text = choice.get("text")
    if isinstance(text, str):
        return text
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return ""
    for name in ("content", "reasoning_content", "reasoning"):
        if isinstance(delta.get(name), str) and delta[name]:
            return str(delta[name])
    calls = delta.get("tool_calls")
    return json.dumps(calls) if calls else ""


def message_of(body: bytes) -> str:
    """What a refusal says, on one line: OpenAI's shape, FastAPI's, or the beginning of whatever."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    text: object = None
    if isinstance(document, dict):
        error = document.get("error")
        text = error.get("message") if isinstance(error, dict) else error
        text = text or document.get("message") or document.get("detail")
    shown = " ".join((str(text) if text else body.decode("utf-8", "replace")).split())
    plain = "".join(one if one.isprintable() else "?" for one in shown[:MESSAGE_CHARACTERS_MAX])
    return plain or "no message"
