# SPDX-License-Identifier: Apache-2.0
"""``octavo doctor``: what octavo makes of this machine. For bug reports, so it never fails."""

from __future__ import annotations

import json
import platform
from typing import Annotated

import typer

from octavo.progress import format_bytes
from octavo.types import env

EXAMPLES = ("octavo doctor", "octavo doctor --json > machine.json")

Facts = dict[str, dict[str, object]]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what octavo makes of this machine.

    Instruction sets, kernels, threads and why, memory and its limits, pulled models.
    """
    facts = collect()
    print(json.dumps(facts, indent=2) if as_json else "\n".join(render(facts)))


def collect() -> Facts:
    """Everything that doctor reports, as plain data; sizes in bytes."""
    import octavo
    from octavo.machine import cpu_budget, cpu_model, memory_budget

    cpus, memory = cpu_budget(), memory_budget()
    return {
        "octavo": {
            "version": octavo.__version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "cpu": {"model": cpu_model(), **_kernels()},
        "threads": {
            "count": cpus.threads,
            "reason": cpus.reason,
            "affinity_cpus": cpus.num_affine,
            "physical_cores": cpus.num_cores,
            "cgroup_quota_cpus": cpus.quota_cpus,
        },
        "memory": {
            "total_bytes": memory.total,
            "available_bytes": memory.available,
            "cgroup_limit_bytes": memory.limit,
            "usable_bytes": memory.usable,
        },
        "models": _models(),
    }


def _kernels() -> dict[str, object]:
    """From the native core; its absence is a finding, too."""
    try:
        from octavo.ops import cpu
    except ImportError as error:
        return {"problem": f"the native core cannot be loaded: {error}"}
    found: dict[str, object] = {
        "instruction_sets": list(cpu.cpu_features()),
        "compiled_kernels": list(cpu.compiled_kernels()),
    }
    try:
        found["selected_kernels"] = cpu.selected_kernel(env.isa())
    except ValueError as error:
        found["problem"] = str(error)
    return found


def _models() -> dict[str, object]:
    from octavo.hub import ALIASES, cache_dir, cached_models
    from octavo.hub.pip_download import pip_version

    folder, pip = cache_dir(), pip_version()
    return {
        "pip": None if pip is None else f"{pip[0]}.{pip[1]}",
        "cache": str(folder),
        "pulled": {model.name: model.size_bytes for model in cached_models(folder)},
        "aliases": sorted(ALIASES),
    }


def render(facts: Facts) -> list[str]:
    """One line per fact; sections as headings."""
    lines: list[str] = []
    for section, values in facts.items():
        lines.append(section)
        for name, value in values.items():
            label = name.removesuffix("_bytes").replace("_", " ")
            lines.append(f"  {label:18}{_show(name, value)}")
    return lines


def _show(name: str, value: object) -> str:
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} ({format_bytes(size)})" for key, size in value.items())
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    if isinstance(value, int) and name.endswith("_bytes"):
        return format_bytes(value)
    return str(value)
