# SPDX-License-Identifier: Apache-2.0
"""``octavo chat``: a conversation in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli import flags
from octavo.cli.config_file import Config
from octavo.cli.knobs import with_quiet_knobs
from octavo.cli.session import open_llm, print_answer
from octavo.hub.aliases import DEFAULT_MODEL
from octavo.types.errors import InvalidRequest, PromptTooLong, UnsupportedModel

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.types.sampling_params import SamplingParams

EXAMPLES = (
    "octavo chat",
    'octavo chat --system "Answer in one sentence." --temperature 0.7',
)
HELP = """\
/reset   forget the conversation
/help    this list
/exit    leave (so does Ctrl-D)
Ctrl-C   stop an answer"""


@with_quiet_knobs
def chat(
    ctx: typer.Context,
    model: flags.Model = DEFAULT_MODEL,
    system: Annotated[
        str | None,
        typer.Option(
            "--system", metavar="TEXT", help="System message; it stays after /reset, too."
        ),
    ] = None,
    max_tokens: flags.MaxTokens = 1024,
    temperature: flags.Temperature = 0.7,
    top_p: flags.TopP = 0.95,
    top_k: flags.TopK = 0,
    seed: flags.Seed = None,
    stop: flags.Stop = None,
    threads: flags.Threads = None,
    isa: flags.Isa = None,
    max_model_len: flags.MaxModelLen = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    stats: Annotated[
        bool, typer.Option("--stats/--no-stats", help="Show counts and speed after each answer.")
    ] = False,
    config: Config = None,
    **knobs: Any,
) -> None:
    """Talk with a model in the terminal.

    It remembers the conversation until /reset; Ctrl-C stops an answer, Ctrl-D leaves.
    """
    params = flags.sampling_params(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop=stop,
    )
    options = {
        **knobs,
        "threads": threads,
        "isa": isa,
        "max_model_len": max_model_len,
        "kv_cache_memory_bytes": kv_cache_memory,
        "max_num_seqs": 1,
    }
    with open_llm(ctx, model, options) as llm:
        if llm.get_tokenizer().chat_template is None:
            raise UnsupportedModel(
                f"{model} has no chat template: it is a base model; use `octavo run` with it"
            )
        print(f"{llm.model_name}: /help lists the commands, Ctrl-D leaves.", file=sys.stderr)
        Conversation(llm, params, system=system, stats=stats).loop()


class Conversation:
    """The messages so far: the system message if there is one, then user and assistant in turn."""

    def __init__(
        self, llm: LLM, params: SamplingParams, *, system: str | None, stats: bool
    ) -> None:
        self._llm = llm
        self._params = params
        self._stats = stats
        self._opening: list[dict[str, object]] = (
            [] if system is None else [{"role": "system", "content": system}]
        )
        self.messages = list(self._opening)

    def loop(self) -> None:
        """Read and answer until Ctrl-D or /exit."""
        _enable_line_editing()
        while True:
            try:
                line = input("> " if sys.stdin.isatty() else "").strip()
            except EOFError:
                return
            except KeyboardInterrupt:  # at the prompt: drop the half-written line
                print("\n(Ctrl-D leaves)", file=sys.stderr)
                continue
            if line == "/exit":
                return
            if line:
                self.take(line)

    def take(self, line: str) -> None:
        """One line from the user: a command or something to answer."""
        if line == "/help":
            print(HELP, file=sys.stderr)
        elif line == "/reset":
            self.messages = list(self._opening)
            print("(forgotten)", file=sys.stderr)
        elif line.startswith("/") and line[1:].isalpha():
            print(f"there is no command {line}; /help lists them", file=sys.stderr)
        else:
            self._answer(line)

    def _answer(self, line: str) -> None:
        asked: list[dict[str, object]] = [*self.messages, {"role": "user", "content": line}]
        try:
            answer = print_answer(self._llm.stream_chat(asked, self._params))
        except PromptTooLong as error:
            print(f"{error}; /reset starts a new conversation", file=sys.stderr)
            return
        except InvalidRequest as error:
            print(f"error: {error}", file=sys.stderr)
            return
        if answer.error is not None:
            print(f"error: {answer.error}", file=sys.stderr)
            return
        # A stopped answer stays, as far as it got: the user saw it and may refer to it.
        self.messages = [*asked, {"role": "assistant", "content": answer.text}]
        if self._stats:
            print(answer.summary(), file=sys.stderr)


def _enable_line_editing() -> None:
    """Arrow keys and history at ``input``, where Python was built with readline."""
    try:
        import readline  # noqa: F401
    except ImportError:
        return
