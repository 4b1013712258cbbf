# SPDX-License-Identifier: Apache-2.0
"""The ``octavo`` command: which subcommands there are, and what becomes of their errors.

Command modules import nothing heavy at the top, so that ``--help`` answers at once; each loads
what it needs when it runs.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from octavo.cli import (
    bench,
    chat,
    doctor,
    generate,
    inspect,
    inspect_server,
    models,
    run,
    serve,
    vmstat,
)
from octavo.cli.foreign_flags import ServeCommand
from octavo.types import env
from octavo.types.errors import InvalidConfig, OctavoError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, what a shell reports for a program that Ctrl-C ended
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE


class OctavoGroup(TyperGroup):
    """Turns what octavo raises on purpose into one line, and leaves bugs their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Exit(EXIT_INTERRUPTED) from error
        except BrokenPipeError as error:
            _abandon_stdout()
            raise typer.Exit(EXIT_PIPE_CLOSED) from error
        except (OctavoError, OSError) as error:  # the caller's mistake, or the machine's
            if _is_debug():
                raise
            print("error:", " ".join(str(error).splitlines()), file=sys.stderr)
            raise typer.Exit(EXIT_ERROR) from error


def _is_debug() -> bool:
    """A bad value of the setting must not turn other errors into tracebacks."""
    with suppress(InvalidConfig):
        return env.is_debug()
    return False


def _prepare_streams() -> None:
    """A stream that the caller closed becomes an empty one, before a model file takes its number.

    Text that the terminal's encoding cannot show, or bytes that are not in it, are no crash: the
    former are shown as ``?``, the latter become surrogates, which requests refuse by name.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _abandon_stdout() -> None:
    """The reader is gone (``octavo ... | head``): keep the flush at exit from failing once more."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # standard output is no file, as under a test runner
        return


def _print_version(wanted: bool) -> None:
    if wanted:
        import octavo

        print(f"octavo {octavo.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="octavo",
    cls=OctavoGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    # vLLM's users write --max_num_seqs as often as --max-num-seqs.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("_", "-"),
    },
    epilog='First steps: [bold]octavo run "Why is the sky blue?"[/bold], then '
    "[bold]octavo chat[/bold], then [bold]octavo serve[/bold] for an OpenAI-compatible server. "
    "[bold]octavo doctor[/bold] says what octavo makes of this machine.",
)


@app.callback()
def octavo_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Serve language models from a paged KV cache, on the machine you have."""


def _add(name: str, function: Any, *examples: str, cls: type[TyperCommand] | None = None) -> None:
    """Examples stand one per paragraph, because help text is reflowed. Typer keeps the docstring's
    own line breaks, which fit no terminal but the editor's."""
    epilog = "\n\n".join(("Examples:", *examples))
    text = "\n\n".join(" ".join(part.split()) for part in function.__doc__.split("\n\n"))
    app.command(name, epilog=epilog, help=text, cls=cls)(function)


_add("run", run.run, *run.EXAMPLES)
_add("chat", chat.chat, *chat.EXAMPLES)
_add("generate", generate.generate, *generate.EXAMPLES)
_add("serve", serve.serve, *serve.EXAMPLES, cls=ServeCommand)
_add("models", models.models, *models.MODELS_EXAMPLES)
_add("pull", models.pull, *models.PULL_EXAMPLES)
_add("inspect", inspect.inspect, *inspect.EXAMPLES)
_add("doctor", doctor.doctor, *doctor.EXAMPLES)
_add("ps", inspect_server.ps, *inspect_server.PS_EXAMPLES)
_add("blocks", inspect_server.blocks, *inspect_server.BLOCKS_EXAMPLES)
_add("pmap", inspect_server.pmap, *inspect_server.PMAP_EXAMPLES)
_add("vmstat", vmstat.vmstat, *vmstat.EXAMPLES)
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Entry point of the ``octavo`` script. Exit status: 0, 1 for an error, 2 for wrong usage, 130
    after Ctrl-C, 141 when the reader of the output went away."""
    _prepare_streams()
    try:
        try:
            app(prog_name="octavo")
        finally:
            sys.stdout.flush()  # here, and not at exit, where an error could not be handled
    except BrokenPipeError:
        _abandon_stdout()
        sys.exit(EXIT_PIPE_CLOSED)
