# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.llm.options import engine_config
from octavo.types.config import EngineConfig
from octavo.types.errors import InvalidConfig


def config(**options: object) -> EngineConfig:
    return engine_config("model", options, stacklevel=1)


def test_nothing_given_is_the_default():
    assert config() == EngineConfig()
    assert config(max_model_len=None, block_size=None, num_threads=None) == EngineConfig()


def test_names_with_an_effect_reach_their_field():
    found = config(
        block_size=16,
        kv_cache_memory_bytes=1000,
        max_num_seqs=3,
        max_num_batched_tokens=64,
        max_model_len=99,
        num_threads=2,
        isa="scalar",
        seed=7,
    )
    assert (found.cache.block_size, found.cache.kv_cache_memory_bytes) == (16, 1000)
    scheduler = found.scheduler
    assert scheduler.max_num_seqs == 3
    assert scheduler.max_num_batched_tokens == 64
    assert scheduler.max_model_len == 99
    assert (found.runtime.threads, found.runtime.isa, found.runtime.seed) == (2, "scalar", 7)
    found = config(swap_space=4, enable_prefix_caching=False, scheduling_policy="sjf")
    assert (found.cache.swap_space, found.cache.enable_prefix_caching) == (4, False)
    assert found.scheduler.scheduling_policy == "sjf"
    assert config(pipeline_depth=3).runtime.pipeline_depth == 3
    assert config(num_gpu_blocks_override=5).cache.num_blocks == 5


def test_an_unknown_name_is_a_type_error_with_the_nearest_known_one():
    with pytest.raises(TypeError, match=r"'max_model_length'; did you mean 'max_model_len'"):
        config(max_model_length=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'zzz'"):
        config(zzz=1)


def test_two_names_of_one_option_do_not_overrule_each_other_in_silence():
    with pytest.raises(TypeError, match="threads is another name"):
        config(num_threads=2, threads=3)
    assert config(num_threads=2, threads=None).runtime.threads == 2


@pytest.mark.parametrize(
    "options",
    [
        {"tensor_parallel_size": 2},
        {"quantization": "awq"},
        {"speculative_config": {"method": "ngram"}},
        {"tokenizer": "other"},
        {"load_format": "safetensors"},
        {"block_size": 12},
        {"max_num_seqs": 0},
        {"pipeline_depth": 5},
        {"watchdog_s": -1},
    ],
)
def test_what_would_change_the_result_is_refused(options):
    with pytest.raises(InvalidConfig, match=next(iter(options))):
        config(**options)


def test_values_that_ask_for_nothing_pass_in_silence():
    config(
        tensor_parallel_size=1,
        tokenizer="model",
        dtype="auto",
        trust_remote_code=False,
        enforce_eager=False,
        quantization=None,
        disable_log_stats=True,
    )


def test_what_has_no_effect_warns_once_with_the_reason():
    with pytest.warns(UserWarning, match="no effect") as caught:
        config(gpu_memory_utilization=0.9, enforce_eager=True, max_seq_len_to_capture=4)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "gpu_memory_utilization (there is no GPU; set kv_cache_memory_bytes)" in message
    assert "max_seq_len_to_capture" in message
    assert caught[0].filename == __file__
