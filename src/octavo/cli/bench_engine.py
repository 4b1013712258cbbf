# SPDX-License-Identifier: Apache-2.0
"""``octavo bench latency`` and ``throughput``: the engine alone, in this process."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli import bench_flags, flags
from octavo.cli.bench_flags import LOAD_PANEL, DataFlags, option, with_groups, write_json
from octavo.cli.knobs import with_quiet_knobs
from octavo.cli.session import open_llm
from octavo.hub.aliases import DEFAULT_MODEL
from octavo.progress import BatchBar

if TYPE_CHECKING:
    from octavo.bench.prompts import Wish
    from octavo.bench.records import Sample
    from octavo.llm import LLM
    from octavo.types.beam_search_params import BeamSearchParams
    from octavo.types.sampling_params import SamplingParams

LATENCY_EXAMPLES = (
    "octavo bench latency",
    "octavo bench latency --model gemma3-270m --batch-size 1 --input-len 128 --num-iters 5",
)
THROUGHPUT_EXAMPLES = (
    "octavo bench throughput --num-prompts 64 --input-len 128 --output-len 64",
    "octavo bench throughput --dataset-name sharegpt --dataset-path ShareGPT.json "
    "--max-model-len 4096",
)


@with_quiet_knobs
def latency(
    ctx: typer.Context,
    model: flags.Model = DEFAULT_MODEL,
    input_len: Annotated[
        int,
        option("--input-len", metavar="TOKENS", min=1, panel=LOAD_PANEL, help="Of each prompt."),
    ] = 32,
    output_len: Annotated[
        int,
        option("--output-len", metavar="TOKENS", min=1, panel=LOAD_PANEL, help="Of each answer."),
    ] = 128,
    batch_size: Annotated[
        int, option("--batch-size", metavar="N", min=1, panel=LOAD_PANEL, help="Prompts at once.")
    ] = 8,
    n: Annotated[
        int, option("--n", metavar="N", min=1, panel=LOAD_PANEL, help="Answers to each prompt.")
    ] = 1,
    use_beam_search: Annotated[
        bool, option("--use-beam-search", panel=LOAD_PANEL, help="With a beam of n.")
    ] = False,
    num_iters_warmup: Annotated[
        int,
        option("--num-iters-warmup", metavar="N", min=0, panel=LOAD_PANEL, help="Not measured."),
    ] = 10,
    num_iters: Annotated[
        int, option("--num-iters", metavar="N", min=1, panel=LOAD_PANEL, help="Measured batches.")
    ] = 30,
    seed: bench_flags.Seed = 0,
    threads: flags.Threads = None,
    isa: flags.Isa = None,
    max_model_len: flags.MaxModelLen = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    output_json: bench_flags.OutputJson = None,
    no_progress: bench_flags.NoProgress = False,
    **knobs: Any,
) -> None:
    """Time one batch from its prompts to its last token, again and again."""
    from octavo.bench import in_process

    options = {
        **knobs,
        "threads": threads,
        "isa": isa,
        "max_model_len": max_model_len,
        "kv_cache_memory_bytes": kv_cache_memory,
    }
    params = _params(n, output_len, use_beam_search=use_beam_search)
    with open_llm(ctx, model, options) as llm:
        prompts = in_process.random_prompts(llm.get_tokenizer(), input_len, batch_size, seed)
        in_process.measure_latency(llm, prompts, params, num_iters_warmup)
        with BatchBar(num_iters, visible=not no_progress) as bar:
            latencies = in_process.measure_latency(llm, prompts, params, num_iters, bar.advance)
    document = in_process.latency_document(latencies)
    print(f"{'Mean latency of a batch (s)':<32}{document['avg_latency']:>12.4f}")
    for percent, value in in_process.percentiles(latencies).items():
        print(f"{f'  p{percent}':<32}{value:>12.4f}")
    if output_json is not None:
        write_json(output_json, document)


def _params(n: int, output_len: int, *, use_beam_search: bool) -> SamplingParams | BeamSearchParams:
    """Answers of full length. Several need a temperature, and a seed, to be the same each time."""
    from octavo.types.beam_search_params import BeamSearchParams
    from octavo.types.sampling_params import SamplingParams

    if use_beam_search:
        return BeamSearchParams(beam_width=n, max_tokens=output_len, ignore_eos=True)
    return SamplingParams(
        n=n, max_tokens=output_len, ignore_eos=True, temperature=float(n > 1), seed=0
    )


@with_groups
@with_quiet_knobs
def throughput(
    ctx: typer.Context,
    data: DataFlags,
    model: flags.Model = DEFAULT_MODEL,
    temperature: flags.Temperature = 0.0,
    threads: flags.Threads = None,
    isa: flags.Isa = None,
    max_model_len: flags.MaxModelLen = None,
    max_num_seqs: flags.MaxNumSeqs = None,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = None,
    block_size: flags.BlockSize = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    output_json: bench_flags.OutputJson = None,
    no_progress: bench_flags.NoProgress = False,
    **knobs: Any,
) -> None:
    """Answer all requests of a data set as one batch, as fast as it goes.

    Every answer has its full length. Requests beyond --max-model-len are left out.
    """
    from octavo.bench.in_process import measure_throughput

    wish = data.wish(max_model_len)
    options = {
        **knobs,
        "threads": threads,
        "isa": isa,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "block_size": block_size,
        "kv_cache_memory_bytes": kv_cache_memory,
    }
    with open_llm(ctx, model, options) as llm:
        samples = _samples(llm, wish)
        with BatchBar(len(samples), visible=not no_progress) as bar:
            document = measure_throughput(
                llm, samples, temperature=temperature, on_done=bar.advance
            )
    for name, value in document.items():
        shown = f"{value:.2f}" if isinstance(value, float) else value
        print(f"{name.replace('_', ' '):<32}{shown:>12}")
    if output_json is not None:
        write_json(output_json, document)


def _samples(llm: LLM, wish: Wish) -> list[Sample]:
    from octavo.bench.prompts import make_samples
    from octavo.bench.words import TokenizerCounter, Writer

    counter = TokenizerCounter(llm.get_tokenizer(), "the model's tokenizer")
    samples = asyncio.run(make_samples(wish, Writer(counter)))
    if len(samples) < wish.count:
        print(f"note: {len(samples)} requests: the data set has no more that fit", file=sys.stderr)
    return samples
