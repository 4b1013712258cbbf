# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C between steps instead of within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Hold back Ctrl-C inside the block and raise ``KeyboardInterrupt`` at its end.

    An exception may otherwise land between any two lines of the engine's bookkeeping, and a half
    committed step could not be told from a bug. A second Ctrl-C is raised at once, for a
    step that hangs. Does nothing off the main thread or where the program has its own handler.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pending: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if pending:
            raise KeyboardInterrupt
        pending.append(number)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pending:
        raise KeyboardInterrupt
