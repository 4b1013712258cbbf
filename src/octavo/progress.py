# SPDX-License-Identifier: Apache-2.0
"""How long work (a download, a load, a batch) tells the user how far it is.

The worker calls a ``Progress``; who renders it is the front end's choice. ``TerminalProgress``
draws bars on standard error when that is a terminal and else writes one line per label, so that a
log file stays readable and standard output stays data.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress(Protocol):
    def __call__(self, label: str, done: int, total: int) -> None:
        """``done`` of ``total`` bytes of the work called ``label`` are finished.

        ``total`` 0 means unknown. Calls may repeat a value; the last one for a label that ends well
        has ``done == total``. Called from the thread that does the work; cheap enough for 10 Hz.
        """


def silent(label: str, done: int, total: int) -> None:
    """The ``Progress`` that shows nothing."""


def both(first: Progress, second: Progress) -> Progress:
    """Shows it to one after the other."""

    def report(label: str, done: int, total: int) -> None:
        first(label, done, total)
        second(label, done, total)

    return report


class TerminalProgress:
    """Renders progress on ``stream`` (standard error unless given); a context manager.

    Bars on a terminal, removed on exit; elsewhere one line when a label first appears.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._bars: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._seen: set[str] = set()

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def __call__(self, label: str, done: int, total: int) -> None:
        if self._is_terminal:
            self._draw(label, done, total)
        elif label not in self._seen:
            self._seen.add(label)
            size = f" ({format_bytes(total)})" if total else ""
            print(f"{label}{size}", file=self._stream, flush=True)

    def _draw(self, label: str, done: int, total: int) -> None:
        if self._bars is None:
            self._bars = _make_bars(self._stream)
            self._bars.start()
        if label not in self._tasks:
            self._tasks[label] = self._bars.add_task(label, total=total or None)
        self._bars.update(self._tasks[label], completed=done, total=total or None)


def _make_bars(stream: TextIO) -> RichProgress:
    """Imported here: rich costs 45 ms, which a run without a download should not pay."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
    )


def format_bytes(num_bytes: int) -> str:
    """``98.4 MB``: decimal units, as download pages and disks count."""
    size = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


class BatchBar:
    """Requests done out of ``total`` and tokens per second, on standard error; a context manager.

    Shows nothing when not ``visible`` or when standard error is no terminal.
    """

    def __init__(self, total: int, *, visible: bool = True) -> None:
        self._total = total
        self._visible = visible and total > 0 and sys.stderr.isatty()
        self._bars: RichProgress | None = None
        self._task: TaskID | None = None
        self._start_s = time.monotonic()
        self._num_tokens = 0

    def __enter__(self) -> BatchBar:
        if self._visible:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
            self._bars = RichProgress(
                TextColumn("Requests"),
                *columns,
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bars.add_task("", total=self._total, rate="")
            self._bars.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def advance(self, num_tokens: int) -> None:
        """One more request is done, with ``num_tokens`` of answer."""
        self._num_tokens += num_tokens
        if self._bars is not None and self._task is not None:
            rate = self._num_tokens / max(time.monotonic() - self._start_s, 1e-9)
            self._bars.update(self._task, advance=1, rate=f"{rate:.1f} tokens/s")
