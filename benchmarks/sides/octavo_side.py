# SPDX-License-Identifier: Apache-2.0
"""octavo's side of compare.py: the engine as a user runs it, Python planning included."""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace

from octavo import SamplingParams, __version__, hub
from octavo.assemble import build_engine
from octavo.types.config import EngineConfig, RuntimeConfig


def main() -> None:
    path = hub.resolve(sys.argv[1]).path
    config = EngineConfig(runtime=RuntimeConfig(threads=int(sys.argv[2])))
    if num_slots := int(sys.argv[3]):
        num_blocks = num_slots // config.cache.block_size
        config = replace(config, cache=replace(config.cache, num_blocks=num_blocks))
    assembled = build_engine(path, config)
    about = {"version": __version__, "isa": assembled.isa, "path": str(path)}
    print(json.dumps(about), flush=True)
    for number, line in enumerate(sys.stdin):
        value = measure(assembled.engine, json.loads(line), f"w{number}")
        print(json.dumps({"tokens_per_s": value}), flush=True)
    assembled.close()


def measure(engine, work, tag: str) -> float:
    rng = random.Random(work["seed"])
    params = SamplingParams(temperature=0.0, max_tokens=work["output_tokens"], ignore_eos=True)
    start = time.perf_counter()
    shared = [rng.randrange(1000, 40000) for _ in range(work["shared_tokens"])]
    for idx in range(work["num_seqs"]):
        ids = shared + [rng.randrange(1000, 40000) for _ in range(work["prompt_tokens"])]
        engine.add_request(f"{tag}-{idx}", ids, params)
    started: dict[str, int] = {}
    decode_start, tokens_at_start = 0.0, 0
    while engine.has_unfinished():
        for output in engine.step():
            started[output.request_id] = output.num_output_tokens
        if not decode_start and len(started) == work["num_seqs"]:
            decode_start, tokens_at_start = time.perf_counter(), sum(started.values())
    end = time.perf_counter()
    if work["whole"]:
        return sum(started.values()) / (end - start)
    if work["output_tokens"] == 1:
        return work["num_seqs"] * work["prompt_tokens"] / (end - start)
    return (sum(started.values()) - tokens_at_start) / (end - decode_start)


if __name__ == "__main__":
    main()
