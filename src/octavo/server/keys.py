# SPDX-License-Identifier: Apache-2.0
"""API keys: where they come from, and whose a presented one is.

Only digests are kept, so that no log, traceback or dump can show a key. No message here repeats
anything of one, however malformed it is.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from octavo.server.rate_limits import Limits
from octavo.types.errors import InvalidConfig

logger = logging.getLogger(__name__)

FILE_BYTES_MAX = 2**20
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_KEY = re.compile(r"[!-~]{1,512}")  # what can stand in a header: visible ASCII, no spaces
_LIMIT = re.compile(r"(requests_per_minute|tokens_per_minute|tokens_per_day)=([0-9]{1,12})")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``name`` is what logs and the fair share know its holder by."""

    name: str
    digest: bytes = field(repr=False)
    limits: Limits


class Keyring:
    """The keys that a server takes. Immutable; safe in any thread."""

    def __init__(self, keys: Sequence[ApiKey] = ()) -> None:
        """Raises ``InvalidConfig`` when a name or a key is there twice."""
        _check_distinct("name", [key.name for key in keys])
        digests = [key.digest for key in keys]
        for index, digest in enumerate(digests):
            if digest in digests[:index]:
                raise InvalidConfig(f"the API key {keys[index].name} is there twice")
        self._keys = tuple(keys)

    @classmethod
    def collect(
        cls,
        keys: Iterable[str] = (),
        *,
        file: str | None = None,
        environment: str | None = None,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
    ) -> Keyring:
        """Keys without a name are called key-1, key-2, ... in the order: given, environment, file.

        ``limits`` hold for the keys that bring none of their own. Raises ``InvalidConfig``.
        """
        plain = [*keys, *([environment] if environment else [])]
        found = [_key(f"key-{i}", text, limits) for i, text in enumerate(plain, 1)]
        if file is not None:
            found += _read_file(file, limits, num_before=len(found))
        return cls(found)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(self._keys)

    def find(self, presented: str) -> ApiKey | None:
        """The key that ``presented`` is. The time it takes tells nothing but how many there are."""
        digest = _digest(presented)
        found = None
        for key in self._keys:  # always all of them
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _key(name: str, text: str, limits: Limits) -> ApiKey:
    if not _KEY.fullmatch(text):
        message = f"the API key {name} must be 1 to 512 visible ASCII characters without spaces"
        raise InvalidConfig(message)
    return ApiKey(name, _digest(text), limits)


def _check_distinct(what: str, values: Sequence[str]) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise InvalidConfig(f"two API keys have the {what} {value}")


def _read_file(path: str, limits: Limits, *, num_before: int) -> list[ApiKey]:
    """One key a line: ``KEY``, or ``NAME KEY`` and perhaps limits as ``tokens_per_minute=1000``."""
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(f"cannot read the API keys of {path}: {error.strerror}") from None
    if len(text) > FILE_BYTES_MAX:
        raise InvalidConfig(f"{path} is larger than {FILE_BYTES_MAX} bytes; is it a file of keys?")
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        logger.warning("everybody on this machine can read the API keys in %s", path)
    keys: list[ApiKey] = []
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            name = f"key-{num_before + len(keys) + 1}"
            keys.append(_parse(words, name, limits, where=f"{path}, line {number}"))
    if not keys:
        raise InvalidConfig(f"{path} holds no API key")
    return keys


def _parse(words: Sequence[str], name: str, limits: Limits, *, where: str) -> ApiKey:
    if len(words) > 1:
        name, text, *settings = words
    else:
        text, settings = words[0], []
    if not _NAME.fullmatch(name):
        message = "the name of a key must be 1 to 64 of letters, digits and ._@-"
        raise InvalidConfig(f"{where}: {message}; a line is KEY, or NAME KEY and limits")
    for setting in settings:
        match = _LIMIT.fullmatch(setting)
        if match is None:
            names = ", ".join(Limits.__dataclass_fields__)
            raise InvalidConfig(f"{where}: after NAME KEY come limits as NAME=NUMBER, of {names}")
        limits = replace(limits, **{match[1]: int(match[2])})
    try:
        return _key(name, text, limits)
    except InvalidConfig as error:
        raise InvalidConfig(f"{where}: {error}") from None
