# SPDX-License-Identifier: Apache-2.0
"""Who is already computing what this group is about to compute?"""

from __future__ import annotations

from octavo.scheduler.queues import RankedQueue
from octavo.types.sequence import Sequence, SequenceGroup


def who_computes(
    seq: Sequence, num_cached: int, running: RankedQueue, block_size: int
) -> SequenceGroup | None:
    """A running group that will make most of ``seq`` findable that is not so yet, if there is one.

    Then ``seq`` had better wait a step or two: requests that arrive together with one long
    beginning compute it once and not each for itself. "Most" is half of its uncached tokens. Only
    prompts in progress are looked at, so the wait ends with the prefill, come what may.
    Cost: one comparison of tokens for each prompt in progress.
    """
    first_end = (num_cached // block_size + 1) * block_size  # of the first block that is not found
    wanted = seq.token_ids
    num_uncached = len(wanted) - num_cached
    salt = seq.group.request.cache_salt
    for group in running:
        other = group.sequences[0]
        last_end = min(other.num_prompt, len(wanted) - 1) // block_size * block_size
        in_progress = other.row is not None and other.num_computed < first_end <= last_end
        if not in_progress or group.request.cache_salt != salt or group is seq.group:
            continue
        common = _num_common(wanted, other.token_ids, first_end, last_end, block_size)
        if 2 * (common - num_cached) >= num_uncached:
            return group
    return None


def _num_common(a: list[int], b: list[int], first_end: int, last_end: int, step: int) -> int:
    """Tokens, in whole blocks, that both begin with; 0 when the first blocks already differ."""
    if a[:first_end] != b[:first_end]:
        return 0
    end = first_end
    while end + step <= last_end and a[end : end + step] == b[end : end + step]:
        end += step
    return end
