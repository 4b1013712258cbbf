# SPDX-License-Identifier: Apache-2.0
"""Readers of the files that benchmarks take their requests from.

Every file is hostile: whatever is wrong is a ``BadDataset`` that names the file, the line and the
field. Files may be compressed with gzip. Traces are read only as far as they are needed.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from octavo.types.errors import OctavoError

TOKENS_MAX = 2**24
LINE_BYTES_MAX = 2**24
FILE_BYTES_MAX = 2**31
TIME_MAX_S = 1e9
MOONCAKE_BLOCK_TOKENS = 512  # that one of the trace's hash ids stands for
_GZIP = b"\x1f\x8b"


class BadDataset(OctavoError):
    """A file of requests cannot be read; the message names it, the line and the field."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A request of which only the lengths are known, in tokens, and when it came, in seconds.

    Prompts whose ``hash_ids`` begin the same begin with the same tokens, ``MOONCAKE_BLOCK_TOKENS``
    for each id.
    """

    num_prompt_tokens: int
    num_output_tokens: int
    at_s: float
    hash_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt with its answer, if there is one, or else the answer's length, if that is known."""

    prompt: str
    answer: str | None = None
    num_output_tokens: int | None = None


def read_azure(path: Path, count: int) -> list[Shape]:
    """``TIMESTAMP,ContextTokens,GeneratedTokens``: the first ``count`` rows."""
    columns = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    shapes: list[Shape] = []
    rows = csv.reader(text for _, text in _lines(path))
    if [name.strip() for name in next(rows, [])] != list(columns):
        raise BadDataset(f"{path}, line 1: the columns must be {','.join(columns)}")
    for row in islice(rows, count):
        where = f"{path}, line {rows.line_num}"
        if len(row) != len(columns):
            raise BadDataset(f"{where}: {len(columns)} columns are wanted, got {len(row)}")
        prompt, answer = (
            _tokens(_number(text), where, name)
            for text, name in zip(row[1:], columns[1:], strict=True)
        )
        shapes.append(Shape(prompt, answer, _timestamp(row[0], where)))
    return _from_first(shapes)


def read_mooncake(path: Path, count: int) -> list[Shape]:
    """JSON lines with timestamp (ms), input_length, output_length and hash_ids: the first
    ``count``."""
    shapes: list[Shape] = []
    for where, fields in islice(_objects(path), count):
        at_s = _milliseconds(fields.get("timestamp"), where)
        ids = fields.get("hash_ids", [])
        if not isinstance(ids, list) or not all(type(one) is int for one in ids):
            raise BadDataset(f"{where}: hash_ids must be a list of integers")
        prompt, answer = (
            _tokens(fields.get(name), where, name) for name in ("input_length", "output_length")
        )
        shapes.append(Shape(prompt, answer, at_s, tuple(ids)))
    return _from_first(shapes)


def read_sharegpt(path: Path) -> list[Turn]:
    """A JSON list of conversations: the first two turns of each that has them."""
    with _opened(path) as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise _too_long(path)
    try:
        rows = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadDataset(f"{path}: not JSON: {error}") from error
    if not isinstance(rows, list):
        raise BadDataset(f"{path}: sharegpt data is a list of conversations")
    turns = [_first_turn(row, f"{path}, entry {idx}") for idx, row in enumerate(rows)]
    return [turn for turn in turns if turn is not None]


def read_custom(path: Path, count: int) -> list[Turn]:
    """JSON lines with prompt, and optionally output_tokens: the first ``count``."""
    turns = []
    for where, fields in islice(_objects(path), count):
        prompt, wanted = fields.get("prompt"), fields.get("output_tokens")
        if not isinstance(prompt, str) or not prompt:
            raise BadDataset(f"{where}: prompt must be text; got {prompt!r:.60}")
        length = None if wanted is None else _tokens(wanted, where, "output_tokens")
        turns.append(Turn(prompt, num_output_tokens=length))
    return turns


def read_sonnet(path: Path) -> list[str]:
    """The lines of a text that are not empty."""
    found = [line.strip() for _, line in _lines(path) if line.strip()]
    if not found:
        raise BadDataset(f"{path}: there is no line of text")
    return found


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Turns what goes wrong while the file is read into ``BadDataset``."""
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == _GZIP
            raw.seek(0)
            with gzip.open(raw, "rb") if is_gzip else raw as file:
                yield cast("BinaryIO", file)
    except UnicodeDecodeError as error:
        raise BadDataset(f"{path} is no UTF-8 text: {error}") from error
    except (OSError, EOFError, csv.Error, zlib.error) as error:
        raise BadDataset(f"cannot read {path}: {error}") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered from 1."""
    num_bytes, number = 0, 0
    with _opened(path) as file:
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            num_bytes += len(line)
            if len(line) == LINE_BYTES_MAX:
                raise BadDataset(f"{path}, line {number} is longer than {LINE_BYTES_MAX} bytes")
            if num_bytes > FILE_BYTES_MAX:
                raise _too_long(path)
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")


def _too_long(path: Path) -> BadDataset:
    return BadDataset(f"{path} is longer than {FILE_BYTES_MAX >> 30} GiB")


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, fields) of each line of a file of JSON lines."""
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadDataset(f"{where}: not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise BadDataset(f"{where}: a line must be a JSON object")
        yield where, fields


def _first_turn(row: object, where: str) -> Turn | None:
    turns = row.get("conversations") if isinstance(row, dict) else None
    if not isinstance(turns, list):
        raise BadDataset(f"{where}: conversations must be a list of turns")
    texts = []
    for turn in turns[:2]:
        text = turn.get("value") if isinstance(turn, dict) else None
        if not isinstance(text, str):
            raise BadDataset(f"{where}: value of a turn must be text")
        texts.append(text)
    return Turn(texts[0], texts[1]) if len(texts) == 2 and all(texts) else None


def _number(text: str) -> object:
    """Of a cell; a text that is no number stays one, to be named in the refusal."""
    return int(text) if text.strip().isdecimal() and len(text) < 20 else text


def _milliseconds(value: object, where: str) -> float:
    """In seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= TIME_MAX_S * 1000:  # also false for NaN
            return value / 1000
    raise BadDataset(f"{where}: timestamp must be milliseconds; got {value!r:.60}")


def _tokens(value: object, where: str, name: str) -> int:
    if type(value) is int and 1 <= value <= TOKENS_MAX:
        return value
    raise BadDataset(f"{where}: {name} must be 1 to {TOKENS_MAX} tokens; got {value!r:.60}")


def _timestamp(text: str, where: str) -> float:
    """Seconds; fractions finer than a microsecond are cut."""
    whole, _, fraction = text.strip().partition(".")
    try:
        moment = datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}")
    except ValueError:
        raise BadDataset(f"{where}: TIMESTAMP must be a date and time; got {text!r:.60}") from None
    return moment.replace(tzinfo=UTC).timestamp()


def _from_first(shapes: list[Shape]) -> list[Shape]:
    """Times counted from the earliest."""
    first_s = min((shape.at_s for shape in shapes), default=0.0)
    return [
        Shape(one.num_prompt_tokens, one.num_output_tokens, one.at_s - first_s, one.hash_ids)
        for one in shapes
    ]
