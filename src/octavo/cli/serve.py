# SPDX-License-Identifier: Apache-2.0
"""``octavo serve``: the OpenAI-compatible server."""

from __future__ import annotations

import gc
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from octavo.cli import flags
from octavo.cli.client import LOOPBACK
from octavo.cli.config_file import Config
from octavo.cli.knobs import with_knobs
from octavo.cli.server_knobs import take_config, with_server_knobs
from octavo.hub.aliases import DEFAULT_MODEL
from octavo.progress import Progress, TerminalProgress, both
from octavo.types import env

if TYPE_CHECKING:
    from fastapi import FastAPI

    from octavo.assemble import Assembled
    from octavo.server.config import ServerConfig
    from octavo.server.operations import Operations
    from octavo.types.config import EngineConfig

logger = logging.getLogger(__name__)

EXAMPLES = (
    "octavo serve",
    "octavo serve gemma3-270m --port 8080 --kv-cache-memory 2GiB",
    "octavo serve --config octavo.toml --port 8080",
    "octavo serve --swap-space 4 --slo-itl-ms 80 --max-num-queued-reqs 200",
    "octavo serve ./model.gguf --served-model-name mine --host 0.0.0.0 --api-key-file keys.txt",
)


@with_knobs
@with_server_knobs
def serve(
    ctx: typer.Context,
    model_tag: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="The model; the same as --model.", show_default=False),
    ] = None,
    model: flags.Model = DEFAULT_MODEL,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. The default lets only this machine in; 0.0.0.0 lets in all."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port.")] = 8000,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            "--served-model-name",
            metavar="NAME",
            help="What clients call the model; may be given several times, the first is the "
            "canonical one. Default: the model's own name.",
        ),
    ] = None,
    max_model_len: flags.MaxModelLen = None,
    max_num_seqs: flags.MaxNumSeqs = None,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = None,
    block_size: flags.BlockSize = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    threads: flags.Threads = None,
    isa: flags.Isa = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Source of the seeds of requests that bring none."),
    ] = None,
    debug_routes: Annotated[
        bool | None,
        typer.Option(
            "--debug-routes/--no-debug-routes",
            help="Answer `octavo ps`, `blocks` and `pmap`, which show everybody's requests, though "
            "never their text. Default: only if no other machine can connect.",
        ),
    ] = None,
    config: Config = None,
    **knobs: Any,
) -> None:
    """Serve a model over HTTP, with OpenAI's and Anthropic's APIs.

    Routes: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/models,
    /tokenize, /health, /load, /metrics; GET /docs lists all. Look inside with octavo ps, blocks,
    pmap and vmstat. SIGTERM or Ctrl-C lets running answers finish first.
    """
    server = take_config(knobs)
    options = {
        **knobs,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "block_size": block_size,
        "kv_cache_memory_bytes": kv_cache_memory,
        "threads": threads,
        "isa": isa,
        "seed": seed,
    }
    address = Address(host, port, shows_books(host, debug_routes), server)
    _serve(flags.one_model(ctx, model_tag, model), address, served_model_name or [], options)


class Address(NamedTuple):
    """Where to listen, whether those who get in may look inside, and who gets in."""

    host: str
    port: int
    debug_routes: bool
    server: ServerConfig


def shows_books(host: str, wanted: bool | None) -> bool:
    """Are there debug routes: as wanted, or else only where no other machine can connect."""
    return host in LOOPBACK if wanted is None else wanted


def _serve(model: str, address: Address, names: list[str], options: dict[str, Any]) -> None:
    from octavo.llm.options import engine_config
    from octavo.server import request_log
    from octavo.server.operations import Operations
    from octavo.server.run import bind, serve_while_loading, url_of

    request_log.set_up(address.server.log_format)
    config = engine_config(model, options, stacklevel=2)
    # Before the model: a bad key file, or a port that is taken, should not cost a load; and who
    # asks hears how far it is.
    around = Operations.prepare(address.server, env.api_key())
    if address.host not in LOOPBACK and not len(around.keyring):
        logger.warning("everybody who can connect may use this server; --api-key-file limits that")
    with ExitStack() as owned:
        owned.callback(around.close)
        sock = owned.enter_context(bind(address.host, address.port))

        def load(progress: Progress) -> FastAPI:
            shows = address.debug_routes
            return _load(
                model, config, owned, progress, names=names, around=around, debug_routes=shows
            )

        scheme = "http" if address.server.ssl_certfile is None else "https"
        logger.info("loading; %s/health/ready tells how far it is", url_of(sock, scheme))
        drain_s = address.server.drain_timeout_s
        serve_while_loading(load, sock=sock, drain_s=drain_s, config=address.server)


def _load(
    model: str,
    config: EngineConfig,
    owned: ExitStack,
    progress: Progress,
    *,
    names: list[str],
    around: Operations,
    debug_routes: bool,
) -> FastAPI:
    """The application on a running engine, which ``owned`` ends."""
    import octavo
    from octavo.assemble import build_engine
    from octavo.engine.async_engine import AsyncEngine
    from octavo.server.app import build_app

    with TerminalProgress() as bars:
        assembled = build_engine(
            model, config, progress=both(bars, progress), load_progress=progress
        )
    owned.callback(assembled.close)
    _log_choices(assembled)
    engine = AsyncEngine(assembled.engine)
    owned.callback(engine.shutdown)
    engine.start()
    canonical, *aliases = names or [assembled.model_name]
    app = build_app(
        engine,
        assembled.tokenizer,
        model_name=canonical,
        aliases=aliases,
        version=octavo.__version__,
        debug_routes=debug_routes,
        chat=assembled.chat,
        around=around,
    )
    # What is here now stays: without it a full collection stops every stream for 25 ms.
    gc.collect()
    gc.freeze()
    return app


def _log_choices(assembled: Assembled) -> None:
    """What was chosen for this machine: the first thing to look at when it is slow or full."""
    stats = assembled.engine.stats()
    logger.info(
        "%s: %s kernels, %d threads, KV cache of %d tokens in blocks of %d",
        assembled.model_name,
        assembled.isa,
        assembled.num_threads,
        stats.num_blocks * stats.block_size,
        stats.block_size,
    )
