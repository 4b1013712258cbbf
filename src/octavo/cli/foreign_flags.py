# SPDX-License-Identifier: Apache-2.0
"""Flags of other servers that octavo's does not have, and what to say to who gives one.

A script that was written for another server should fail with the reason, and not with a guess at a
similar name.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

_LORA = "octavo serves no LoRA adapters; merge the adapter into the model's file, and serve that"
_GPU = "octavo computes on CPUs; leave it out"
_ONE = "octavo runs in one process on one machine; leave it out"
_BITS = "weights keep the types of the model's file; choose another file"
_BUILT_IN = "that is always so; leave it out"
_MEDIA = "octavo takes text alone; leave it out"
_CODE = "octavo never runs code that comes with a model; leave it out"

REASONS = {
    **dict.fromkeys(
        (
            "--enable-lora",
            "--fully-sharded-loras",
            "--lora",
            "--lora-dtype",
            "--lora-modules",
            "--max-cpu-loras",
            "--max-lora-rank",
            "--max-loras",
        ),
        _LORA,
    ),
    **dict.fromkeys(
        (
            "--all2all-backend",
            "--attention-backend",
            "--compilation-config",
            "--cpu-offload-gb",
            "--disable-custom-all-reduce",
            "--enforce-eager",
            "--n-gpu-layers",
            "--ngl",
        ),
        _GPU,
    ),
    "--gpu-memory-utilization": "octavo computes on CPUs; give --kv-cache-memory a size",
    **dict.fromkeys(
        (
            "--api-server-count",
            "--data-parallel-size",
            "--distributed-executor-backend",
            "--enable-expert-parallel",
            "--headless",
            "--nnodes",
            "--pipeline-parallel-size",
            "--tensor-parallel-size",
        ),
        _ONE,
    ),
    **dict.fromkeys(("--dtype", "--kv-cache-dtype", "--load-format", "--quantization"), _BITS),
    **dict.fromkeys(("--enable-auto-tool-choice", "--enable-chunked-prefill"), _BUILT_IN),
    **dict.fromkeys(
        (
            "--limit-mm-per-prompt",
            "--mm-processor-kwargs",
            "--mmproj",
        ),
        _MEDIA,
    ),
    "--trust-remote-code": _CODE,
    "--middleware": "octavo loads no foreign code; put a proxy in front",
    "--disable-log-requests": "the log never shows what was asked; see --log-prompts",
    "--enable-log-requests": "every request has a line in the log; see --log-prompts",
    "--disable-log-stats": "there are no lines of statistics; GET /metrics has them",
    "--disable-uvicorn-access-log": "there is one line of log for each request; see --log-format",
    "--max-seq-len-to-capture": _GPU,
    "--num-gpu-blocks-override": "give --kv-cache-memory a size",
    "--num-scheduler-steps": "it tunes another engine's scheduler; leave it out",
    "--speculative-config": "octavo does not speculate; leave it out",
    "--tokenizer": "the tokenizer is part of the model's file; leave it out",
    "--uvicorn-log-level": "see --log-format",
}


class ServeCommand(TyperCommand):
    """``octavo serve``, which knows the flags above by their reasons."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for arg in args:
            if arg == "--":
                break
            name = arg.partition("=")[0].replace("_", "-")
            reason = REASONS.get(name) or REASONS.get(name.replace("--no-", "--", 1))
            if reason is not None and not any(name in one.opts for one in self.params):
                ctx.fail(f"{name} is not supported: {reason}")
        return list(super().parse_args(ctx, args))
