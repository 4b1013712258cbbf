# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hmac
import logging
import os

import pytest

from octavo.server import keys as keys_module
from octavo.server.keys import Keyring
from octavo.server.rate_limits import Limits
from octavo.types.errors import InvalidConfig

SECRET = "sk-Quagga-777"


def names(keyring: Keyring) -> list[str]:
    return [key.name for key in keyring]


def test_keys_come_from_three_places_in_order(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# ours\n\nalice sk-alice\nsk-nameless\n")
    path.chmod(0o600)
    keyring = Keyring.collect(["sk-a", "sk-b"], file=str(path), environment="sk-env")
    assert names(keyring) == ["key-1", "key-2", "key-3", "alice", "key-5"]
    found = keyring.find("sk-env")
    assert found is not None
    assert found.name == "key-3"
    assert keyring.find("sk-alic") is None
    assert keyring.find("") is None


def test_a_line_may_have_its_own_limits(tmp_path):
    path = tmp_path / "keys"
    path.write_text("a sk-a tokens_per_day=5 requests_per_minute=0\nb sk-b\n")
    keyring = Keyring.collect(file=str(path), limits=Limits(requests_per_minute=9))
    assert [key.limits for key in keyring] == [Limits(0, 0, 5), Limits(9, 0, 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"a {SECRET} b", "line 1: after NAME KEY come limits"),
        (f"a {SECRET} tokens_per_minute=-1", "after NAME KEY come limits"),
        (f"a {SECRET} tokens_per_year=1", "requests_per_minute, tokens_per_minute, tokens_per_day"),
        (f"# x\na:b {SECRET}", "line 2: the name of a key must be"),
        (f"a {SECRET}\u00e4", "line 1: the API key a must be 1 to 512 visible ASCII"),
        (f"{SECRET}{'x' * 512}", "must be 1 to 512 visible"),
        (f"a {SECRET}\na sk-2", "two API keys have the name a"),
        (f"a {SECRET}\nb {SECRET}", "the API key b is there twice"),
        ("# nothing\n", "holds no API key"),
    ],
)
def test_a_bad_file_is_a_clear_error_without_the_key(tmp_path, text, message):
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match=message) as refused:
        Keyring.collect(file=str(path))
    assert SECRET not in str(refused.value)


def test_a_missing_or_huge_file_is_a_clear_error(tmp_path, monkeypatch):
    with pytest.raises(InvalidConfig, match="cannot read the API keys of /no/such"):
        Keyring.collect(file="/no/such")
    path = tmp_path / "keys"
    path.write_text("x" * (2**20 + 1))
    with pytest.raises(InvalidConfig, match="is it a file of keys"):
        Keyring.collect(file=str(path))


def test_a_bad_key_on_the_command_line_is_named_by_its_number():
    with pytest.raises(InvalidConfig, match="API key key-2 must be") as refused:
        Keyring.collect(["sk-a", f"{SECRET} "])
    assert SECRET not in str(refused.value)


def test_a_file_that_everybody_can_read_is_warned_of(tmp_path, caplog):
    path = tmp_path / "keys"
    path.write_text("sk-a")
    for mode, warnings in ((0o600, 0), (0o640, 0), (0o644, 1)):
        os.chmod(path, mode)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "octavo"):
            Keyring.collect(file=str(path))
        assert caplog.text.count("everybody on this machine can read") == warnings


def test_nothing_shows_a_key():
    keyring = Keyring.collect([SECRET])
    assert SECRET not in repr(keyring) + repr(list(keyring)) + str(vars(type(keyring)))
    (key,) = keyring
    assert SECRET.encode() not in key.digest


def test_every_key_is_compared_whichever_fits(monkeypatch):
    """The time must not tell which key was nearly right, so no comparison is left out."""
    compared: list[int] = []

    class Counting:
        @staticmethod
        def compare_digest(a: bytes, b: bytes) -> bool:
            compared.append(len(a) + len(b))
            return hmac.compare_digest(a, b)

    monkeypatch.setattr(keys_module, "hmac", Counting)
    keyring = Keyring.collect(["sk-a", "sk-b", "sk-c"])
    for presented in ("sk-a", "sk-c", "sk-", "x" * 9999):
        compared.clear()
        keyring.find(presented)
        assert compared == [64, 64, 64], presented
