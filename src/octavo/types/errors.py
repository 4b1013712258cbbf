# SPDX-License-Identifier: Apache-2.0
"""Every exception that octavo raises on purpose.

OctavoError
├── InvalidRequest(ValueError)   the caller's mistake; ``param`` names the field
│   └── PromptTooLong            can never fit: the numbers are in the message
├── InvalidConfig(ValueError)    a setting has a bad value; the message gives the allowed range
├── ModelError                   a model cannot be found, read or run
│   ├── ModelNotFound            the name resolves to nothing; the message says what to try
│   ├── BadCheckpoint            a file is damaged or hostile; names the file and the field
│   └── UnsupportedModel         well formed, but octavo has no code for it
├── EngineStopped                the engine has shut down or failed; no request can be taken
├── EngineOverloaded             too many requests wait already; later there may be room
├── StepFailed                   one step failed in the data plane; its sequences are lost
├── GrammarFailed                a grammar has exceeded a limit while it ran; its sequence is lost
└── CorruptState                 our bug: an account does not balance. Stays on under ``python -O``

Running out of blocks is an everyday event and therefore a return value, never an exception.
"""

from __future__ import annotations


class OctavoError(Exception):
    """The root: ``except OctavoError`` catches what octavo raises on purpose, and nothing else."""


class InvalidRequest(OctavoError, ValueError):
    """A request is refused before it gets an id. ``param`` is the field as the caller spells it."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class PromptTooLong(InvalidRequest):
    """The request cannot fit even into an empty engine, so waiting would never help."""


class InvalidConfig(OctavoError, ValueError):
    """A setting is unknown or outside its range."""


class ModelError(OctavoError):
    """A model cannot be found, read or run."""


class ModelNotFound(ModelError):
    """A model name resolves to nothing here; the message says what to try."""


class BadCheckpoint(ModelError):
    """A model file is damaged, truncated or hostile. The message names the file and the field."""


class UnsupportedModel(ModelError):
    """A model file is well formed, but this version of octavo cannot run it."""


class EngineStopped(OctavoError):
    """The engine has shut down; start a new one."""


class EngineOverloaded(OctavoError):
    """As many requests or tokens wait as may; there may be room again in ``retry_after_s``."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StepFailed(OctavoError):
    """The data plane could not finish a step; the sequences in it end with ``error``."""


class GrammarFailed(OctavoError):
    """A sequence's grammar has exceeded a limit while it ran; its request ends with ``error``."""


class CorruptState(OctavoError):
    """An internal account does not balance: always a bug in octavo, never the caller's fault."""
