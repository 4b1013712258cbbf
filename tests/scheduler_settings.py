# SPDX-License-Identifier: Apache-2.0
"""The settings that the random lives of ``scheduler_machine.py`` are lived under."""

from __future__ import annotations

from hypothesis import strategies as st

settings_drawn = st.fixed_dictionaries(
    {
        "max_num_seqs": st.integers(2, 6),
        "max_num_batched_tokens": st.sampled_from([3, 5, 8, 40]),
        "scheduling_policy": st.sampled_from(
            ["fcfs", "priority", "sjf", "hrrn", "lpm", "fair", "weighted"]
        ),
        "max_queue_wait_s": st.sampled_from([0, 5]),
        "promoted_share": st.sampled_from([0, 0.25, 0.9]),
        "ageing_weight": st.sampled_from([0, 1.0]),
        "block_weight": st.sampled_from([0, 0.5]),
        "lookahead_window": st.sampled_from([0, 2, 8]),
        "max_overtakes": st.sampled_from([0, 2, 16]),
        "max_overtake_steps": st.sampled_from([0, 1, 5]),
        "admission_reserve": st.sampled_from(["none", "prompt", "expected", "full"]),
        "max_num_partial_prefills": st.sampled_from([1, 2, 4]),
        "max_long_partial_prefills": st.sampled_from([1, 2]),
        "long_prefill_token_threshold": st.sampled_from([0, 16]),
        "slo_itl_ms": st.sampled_from([None, 2.0]),
        "preemption_mode": st.sampled_from(["swap", "swap", "recompute", "auto", "legacy"]),
        "max_preemptions": st.sampled_from([0, 1, 3]),
        "priority_preemption": st.booleans(),
        "priority_preemption_gap": st.sampled_from([0, 1, 2]),
        "partial_preemption": st.booleans(),
        "batch_reserve": st.sampled_from([0, 0.2, 0.5]),
        "high_watermark": st.sampled_from([0, 0.02, 0.3]),
        "max_num_active_seqs": st.sampled_from([None, None, 2]),
        "prefill_share": st.sampled_from([1, 0.3]),
    }
)
