# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import typer

from clikit import invoke
from octavo.cli.foreign_flags import REASONS
from octavo.cli.main import app


def said(*args: str) -> str:
    result = invoke("serve", *args)
    assert result.exit_code == 2
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "args",
    [
        ("--enable-lora",),
        ("--enable_lora",),
        ("m.gguf", "--port", "0", "--lora-modules", "a=b"),
        ("--max-loras=4",),
    ],
)
def test_adapters_are_refused_with_the_reason(args):
    assert "is not supported: octavo serves no LoRA adapters; merge the adapter" in said(*args)


def test_a_flag_of_a_gpu_says_what_to_give_instead():
    assert "--gpu-memory-utilization is not supported" in said("--gpu-memory-utilization", "0.9")
    assert "give --kv-cache-memory a size" in said("--gpu-memory-utilization=0.9")
    assert "CPUs" in said("--no-enforce-eager")


def test_any_other_unknown_flag_is_still_one():
    assert "No such option: --max-num-sequences" in said("--max-num-sequences", "4")


def test_what_follows_two_dashes_is_no_flag():
    assert "unexpected extra argument" in said("a.gguf", "--", "--enable-lora").lower()


def test_no_flag_of_octavo_is_refused():
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    ours = {name for parameter in command.params for name in parameter.opts}
    assert not ours & REASONS.keys()
