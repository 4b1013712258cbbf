# SPDX-License-Identifier: Apache-2.0
"""``OCTAVO_DEBUG`` with a bad value must not add a traceback to another error."""

from __future__ import annotations

import pytest

from clikit import invoke


@pytest.mark.parametrize("value", ["maybe", "2", "yes"])
def test_a_bad_debug_setting_hides_no_error(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_DEBUG", value)
    result = invoke("inspect", "/nonexistent.gguf")
    assert result.exit_code == 1
    assert "error: there is no file /nonexistent.gguf" in result.output
