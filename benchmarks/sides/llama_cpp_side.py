# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's side of compare.py: one llama_decode per step for all sequences, greedy, no text.

Flash attention and everything else stay at the library's defaults; separate KV streams per sequence
(kv_unified off) measured faster for batches, so they are used.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
import time

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp as lib

BATCH_TOKENS = 512


@lib.llama_log_callback
def silent(level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
    """Drops the library's log lines."""


def open_context(
    model: object, num_seqs: int, threads: int, num_shared: int, num_cells: int
) -> object:
    params = lib.llama_context_default_params()
    params.n_ctx = num_cells
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.n_threads = params.n_threads_batch = threads
    params.n_seq_max = num_seqs
    # A unified cache lets sequences share the cells of a prefix; else separate streams are faster.
    params.kv_unified = num_shared > 0
    return lib.llama_init_from_model(model, params)


def decode(context: object, tokens: list[tuple[int, int, int, bool]]) -> None:
    """``tokens``: (id, position, sequence, wants logits)."""
    batch = lib.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for idx, (token, position, sequence, logits) in enumerate(tokens):
        batch.token[idx], batch.pos[idx], batch.logits[idx] = token, position, logits
        batch.n_seq_id[idx] = 1
        batch.seq_id[idx][0] = sequence
    code = lib.llama_decode(context, batch)
    lib.llama_batch_free(batch)
    if code != 0:
        raise SystemExit(f"llama_decode answered {code}")


def prefill(context: object, seq: int, ids: list[int], first: int) -> None:
    """``ids`` at positions from ``first`` on; the last one's logits are kept."""
    for begin in range(0, len(ids), BATCH_TOKENS):
        part = enumerate(ids[begin : begin + BATCH_TOKENS], begin)
        last = len(ids) - 1
        decode(context, [(token, first + pos, seq, pos == last) for pos, token in part])


def greedy(context: object, row: int, vocab_size: int) -> int:
    logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, row), (vocab_size,))
    return int(logits.argmax())


def measure(model: object, work: dict[str, int], threads: int, num_cells: int) -> float:
    num_seqs, num_shared = work["num_seqs"], work["shared_tokens"]
    length = num_shared + work["prompt_tokens"]
    vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    context = open_context(model, num_seqs, threads, num_shared, num_cells)
    rng = random.Random(work["seed"])
    next_ids = []
    start = time.perf_counter()
    shared = [rng.randrange(1000, 40000) for _ in range(num_shared)]
    prefill(context, 0, shared, 0)
    for seq in range(1, num_seqs if num_shared else 0):
        lib.llama_memory_seq_cp(lib.llama_get_memory(context), 0, seq, 0, num_shared)
    for seq in range(num_seqs):
        ids = [rng.randrange(1000, 40000) for _ in range(work["prompt_tokens"])]
        prefill(context, seq, ids, num_shared)
        next_ids.append(greedy(context, -1, vocab_size))
    middle = time.perf_counter()
    for step in range(work["output_tokens"] - 1):
        decode(context, [(token, length + step, seq, True) for seq, token in enumerate(next_ids)])
        next_ids = [greedy(context, row, vocab_size) for row in range(num_seqs)]
    end = time.perf_counter()
    lib.llama_free(context)
    if work["whole"]:
        return num_seqs * work["output_tokens"] / (end - start)
    if work["output_tokens"] == 1:
        return num_seqs * length / (middle - start)
    return num_seqs * (work["output_tokens"] - 1) / (end - middle)


def main() -> None:
    path, threads, num_cells = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    features = lib.llama_print_system_info().decode().strip()
    print(json.dumps({"version": llama_cpp.__version__, "isa": features, "path": path}), flush=True)
    for line in sys.stdin:
        value = measure(model, json.loads(line), threads, num_cells)
        print(json.dumps({"tokens_per_s": value}), flush=True)


if __name__ == "__main__":
    main()
