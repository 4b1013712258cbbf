# SPDX-License-Identifier: Apache-2.0
"""Tags in a text that comes in pieces."""

from __future__ import annotations


def overlap(text: str, tag: str) -> int:
    """The length of the longest end of ``text`` that begins ``tag`` and is not all of it."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0


# White space beside a tag belongs to it, but no more than this: it is held until the tag comes, and
# looked at for each piece that comes before.
SPACE_MAX = 1024


def before_tag(text: str) -> str:
    """The text less the white space at its end."""
    return text[: max(len(text.rstrip()), len(text) - SPACE_MAX)]
