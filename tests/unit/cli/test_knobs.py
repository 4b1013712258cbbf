# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import fields

import pytest
import typer

from clikit import invoke
from octavo.cli.knobs import WITHOUT_FLAG, parse_factor, with_knobs
from octavo.cli.main import app
from octavo.llm.options import engine_config
from octavo.types.config import CacheConfig, ChatConfig, RuntimeConfig, SchedulerConfig

CONFIGS = (CacheConfig, SchedulerConfig, RuntimeConfig, ChatConfig)
FIELDS = {field.name for config in CONFIGS for field in fields(config)}
OTHER_NAMES = {"kv_cache_memory_bytes": "kv_cache_memory"}


def serve_flags() -> dict[str, object]:
    """The parameters of ``octavo serve`` by name, as click sees them."""
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return {parameter.name: parameter for parameter in command.params}


def test_every_field_is_a_flag_or_has_a_reason_not_to_be():
    flags = {name for name in FIELDS if OTHER_NAMES.get(name, name) in serve_flags()}
    assert flags | WITHOUT_FLAG.keys() == FIELDS
    assert not flags & WITHOUT_FLAG.keys()
    assert all(WITHOUT_FLAG.values())


@pytest.mark.parametrize("name", sorted(FIELDS - WITHOUT_FLAG.keys() - {"seed"}))
def test_no_flag_means_the_default_of_the_configuration(name):
    assert serve_flags()[OTHER_NAMES.get(name, name)].default is None


def parsed(*args: str) -> dict[str, object]:
    """What a command with the knobs gets."""
    seen: dict[str, object] = {}

    @with_knobs
    def command(**knobs: object) -> None:
        seen.update(knobs)

    one = typer.Typer(add_completion=False)
    one.command()(command)
    one(list(args), standalone_mode=False)
    return seen


SETTINGS = {
    "--no-enable-prefix-caching": ("enable_prefix_caching", False),
    "--enable-prefix-caching": ("enable_prefix_caching", True),
    "--eviction-policy=s3fifo": ("eviction_policy", "s3fifo"),
    "--watermark=0.1": ("watermark", 0.1),
    "--swap-space=0.5": ("swap_space", 0.5),
    "--swap-path=/tmp": ("swap_path", "/tmp"),
    "--scheduling-policy=fair": ("scheduling_policy", "fair"),
    "--max-queue-wait-s=2.5": ("max_queue_wait_s", 2.5),
    "--priority-preemption-gap=3": ("priority_preemption_gap", 3),
    "--promoted-share=0.5": ("promoted_share", 0.5),
    "--ageing-weight=2": ("ageing_weight", 2.0),
    "--admission-reserve=full": ("admission_reserve", "full"),
    "--batching=static": ("batching", "static"),
    "--no-priority-preemption": ("priority_preemption", False),
    "--scheduler-delay-factor=auto": ("scheduler_delay_factor", "auto"),
    "--scheduler-delay-factor=0.5": ("scheduler_delay_factor", 0.5),
    "--slo-itl-ms=80": ("slo_itl_ms", 80.0),
    "--slo-ttft-ms=900": ("slo_ttft_ms", 900.0),
    "--preemption-mode=legacy": ("preemption_mode", "legacy"),
    "--pipeline-depth=1": ("pipeline_depth", 1),
    "--max-num-queued-reqs=7": ("max_num_queued_reqs", 7),
    "--watchdog-s=0": ("watchdog_s", 0.0),
    "--chat-template=a.jinja": ("chat_template", "a.jinja"),
    "--tool-call-parser=hermes": ("tool_call_parser", "hermes"),
    "--reasoning-parser=none": ("reasoning_parser", "none"),
}


@pytest.mark.parametrize("flag", SETTINGS)
def test_a_flag_sets_its_field(flag):
    name, value = SETTINGS[flag]
    knobs = parsed(flag)
    assert {key: one for key, one in knobs.items() if one is not None} == {name: value}
    config = engine_config("m", knobs, stacklevel=1)
    homes = (config.cache, config.scheduler, config.runtime, config.chat)
    (home,) = [one for one in homes if hasattr(one, name)]
    assert getattr(home, name) == value


def test_no_flags_are_the_default_configuration():
    config = engine_config("m", parsed(), stacklevel=1)
    homes = (config.cache, config.scheduler, config.runtime, config.chat)
    assert homes == tuple(one() for one in CONFIGS)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--scheduling-policy=bogus", "scheduling_policy must be one of fcfs, "),
        ("--watermark=3", "watermark must be a number in"),
        ("--pipeline-depth=5", "pipeline_depth must be an integer in [1, 4]"),
    ],
)
def test_a_value_out_of_range_is_one_line_before_anything_is_loaded(flag, message):
    result = invoke("serve", "/no/such/model.gguf", "--port", "0", flag)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_help_names_every_choice_that_the_configuration_knows():
    flags = serve_flags()
    for name in ("scheduling_policy", "admission_reserve", "preemption_mode", "eviction_policy"):
        config = CacheConfig if name == "eviction_policy" else SchedulerConfig
        with pytest.raises(ValueError, match="one of") as refused:
            config(**{name: "bogus"})
        choices = str(refused.value).partition("one of ")[2].partition(";")[0].split(", ")
        assert [choice for choice in choices if choice not in flags[name].help] == []


def test_what_is_no_factor():
    with pytest.raises(typer.BadParameter, match="neither a number nor auto"):
        parse_factor("fast")
