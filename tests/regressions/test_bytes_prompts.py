# SPDX-License-Identifier: Apache-2.0
"""Bytes are undecoded text, and must not pass for token ids because their items are numbers."""

from __future__ import annotations

import pytest

from octavo.llm.prompts import normalise_prompts
from octavo.types.errors import InvalidRequest


@pytest.mark.parametrize("text", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_are_no_prompt(text: object) -> None:
    for prompts in (text, [text], {"prompt_token_ids": text}, [{"prompt": text}]):
        with pytest.raises(InvalidRequest, match="a prompt is a string"):
            normalise_prompts(prompts)  # type: ignore[arg-type]
