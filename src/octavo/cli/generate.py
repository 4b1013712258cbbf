# SPDX-License-Identifier: Apache-2.0
"""``octavo generate``: a file of prompts in, a file of answers out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from octavo.cli import flags
from octavo.cli.config_file import Config
from octavo.cli.knobs import with_knobs
from octavo.cli.sampling_flags import taken, with_sampling
from octavo.cli.session import open_llm
from octavo.hub.aliases import DEFAULT_MODEL
from octavo.progress import BatchBar
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidConfig, InvalidRequest
from octavo.types.request import Standing
from octavo.types.sampling_params import SamplingParams
from octavo.types.structured_outputs import StructuredOutputs

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.llm.prompts import Message
    from octavo.types.outputs import CompletionOutput, RequestOutput

EXAMPLES = (
    "octavo generate prompts.jsonl -o answers.jsonl",
    "octavo generate prompts.jsonl --model gemma3-270m --max-tokens 64 --temperature 0.8 --seed 1",
    """printf '{"prompt": "1 2 3"}' | octavo generate -""",
)
# What a line may set for itself; the flags hold for lines that do not.
SAMPLING_FIELDS = frozenset(
    {
        "best_of",
        "allowed_token_ids",
        "bad_words",
        "frequency_penalty",
        "ignore_eos",
        "include_stop_str_in_output",
        "logit_bias",
        "logprobs",
        "logprobs_mode",
        "max_tokens",
        "min_p",
        "min_tokens",
        "n",
        "on_overflow",
        "queue_timeout_s",
        "presence_penalty",
        "repetition_penalty",
        "seed",
        "skip_special_tokens",
        "stop",
        "stop_token_ids",
        "structured_outputs",
        "temperature",
        "timeout_s",
        "top_k",
        "top_n_sigma",
        "top_p",
        "ttft_timeout_s",
        "typical_p",
    }
)
BEAM_FIELDS = frozenset({"use_beam_search", "length_penalty", "early_stopping"})
STANDING_FIELDS = frozenset({"cache_salt", "priority", "service_class", "user"})
_OTHER_FIELDS = frozenset({"id", "custom_id", "prompt", "messages"})


@with_sampling
@with_knobs
def generate(
    ctx: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE.jsonl",
            help='One JSON object per line, with "prompt" or "messages", and optionally "id" and '
            "fields of a request (max_tokens, n, structured_outputs, priority, ...). - reads "
            "standard input.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where the answers go, one JSON object per line in the order of the input; "
            "- is standard output.",
        ),
    ] = "-",
    model: flags.Model = DEFAULT_MODEL,
    threads: flags.Threads = None,
    isa: flags.Isa = None,
    max_model_len: flags.MaxModelLen = None,
    max_num_seqs: flags.MaxNumSeqs = None,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = None,
    block_size: flags.BlockSize = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    config: Config = None,
    **knobs: Any,
) -> None:
    """Answer every line of a file, as one batch.

    A bad line fails alone: its reply has an "error", and the exit status is 1.
    """
    defaults = taken(knobs)
    lines = _read_lines(file)
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
    with _open_output(output) as out, open_llm(ctx, model, options) as llm:
        totals = _answer_all(llm, lines, defaults, out)
    print(totals.summary(), file=sys.stderr)
    if totals.num_failed:
        raise typer.Exit(1)


@dataclass(slots=True)
class Totals:
    num_lines: int
    num_failed: int = 0
    num_tokens: int = 0
    total_s: float = 0.0

    def summary(self) -> str:
        rate = self.num_tokens / self.total_s if self.total_s else 0.0
        failed = f", {self.num_failed} failed" if self.num_failed else ""
        return (
            f"{self.num_lines} lines{failed} · {self.num_tokens} tokens in {self.total_s:.1f} s · "
            f"{rate:.1f} tokens/s"
        )


def _answer_all(llm: LLM, lines: list[str], defaults: SamplingParams, out: TextIO) -> Totals:
    """Write each answer as soon as all before it are written: a batch that is stopped half-way
    leaves what is done."""
    totals = Totals(len(lines))
    start_s = time.monotonic()
    replies: dict[int, dict[str, object]] = {}
    idx_of: dict[str, int] = {}
    for idx, line in enumerate(lines):
        try:
            idx_of[_enqueue(llm, line, defaults)] = idx
        except InvalidRequest as error:
            replies[idx] = _failure(idx, line, str(error), error.param)
    num_written = _write_ready(out, replies, 0)
    with BatchBar(len(idx_of)) as bar:
        for output in llm.as_completed(list(idx_of)):
            idx = idx_of[output.request_id]
            replies[idx] = _reply(idx, lines[idx], output)
            totals.num_tokens += output.num_output_tokens
            totals.num_failed += output.error is not None
            bar.advance(output.num_output_tokens)
            num_written = _write_ready(out, replies, num_written)
    totals.num_failed += len(lines) - len(idx_of)
    totals.total_s = time.monotonic() - start_s
    return totals


def _enqueue(llm: LLM, line: str, defaults: SamplingParams) -> str:
    """Raises ``InvalidRequest`` for whatever is wrong with the line."""
    fields = _parse(line)
    params = _params(fields, defaults)
    standing = Standing(**cast("Any", _only(fields, STANDING_FIELDS)))
    if "messages" in fields:
        messages = cast("list[Message]", fields["messages"])
        return llm.enqueue_chat([messages], params, standing=standing)[0]
    return llm.enqueue(_as_prompt(fields["prompt"]), params, standing=standing)[0]


def _params(
    fields: dict[str, object], defaults: SamplingParams
) -> SamplingParams | BeamSearchParams:
    own, search = _only(fields, SAMPLING_FIELDS), _only(fields, BEAM_FIELDS)
    if own.get("structured_outputs") is not None:
        own["structured_outputs"] = _form(own["structured_outputs"])
    is_search = search.pop("use_beam_search", False)
    if not isinstance(is_search, bool):
        raise InvalidRequest("use_beam_search must be a boolean", param="use_beam_search")
    if is_search:
        own.setdefault("temperature", 1)  # 0 would refuse several answers
        return BeamSearchParams.like(defaults.clone(**own), **cast("Any", search))
    if search:
        name = min(search)
        raise InvalidRequest(f"{name} needs use_beam_search to be true", param=name)
    return defaults.clone(**own)


def _form(value: object) -> StructuredOutputs:
    known = StructuredOutputs.__dataclass_fields__
    if not isinstance(value, dict) or not value.keys() <= known.keys():
        raise InvalidRequest(
            f"structured_outputs must be an object of {', '.join(known)}",
            param="structured_outputs",
        )
    return StructuredOutputs(**cast("Any", value))


def _only(fields: dict[str, object], names: frozenset[str]) -> dict[str, object]:
    return {key: fields[key] for key in sorted(fields.keys() & names)}


def _as_prompt(value: object) -> dict[str, object]:
    """Text or token ids, as a dict: a bare list could also be read as several prompts."""
    if isinstance(value, list):
        return {"prompt_token_ids": value}
    if isinstance(value, str):
        return {"prompt": value}
    raise InvalidRequest("prompt must be a string or a list of token ids", param="prompt")


def _parse(line: str) -> dict[str, object]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidRequest("a line must be a JSON object")
    known = SAMPLING_FIELDS | BEAM_FIELDS | STANDING_FIELDS | _OTHER_FIELDS
    unknown = fields.keys() - known
    if unknown:
        name = min(unknown)
        raise InvalidRequest(f"unknown field {name!r}", param=name)
    if ("prompt" in fields) == ("messages" in fields):
        raise InvalidRequest('a line needs "prompt" or "messages", and not both', param="prompt")
    return fields


def _reply(idx: int, line: str, output: RequestOutput) -> dict[str, object]:
    if output.error is not None:
        return _failure(idx, line, output.error, None)
    completion, *others = output.outputs
    usage = {
        "prompt_tokens": len(output.prompt_token_ids),
        "completion_tokens": output.num_output_tokens,
    }
    if output.num_truncated_tokens:
        usage["truncated_tokens"] = output.num_truncated_tokens
    reply = {
        **_identity(idx, line),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "usage": usage,
    }
    if others:  # the first one again, so that all are in one place
        reply["choices"] = [_choice(one) for one in output.outputs]
    return reply


def _choice(completion: CompletionOutput) -> dict[str, object]:
    score = {} if completion.score is None else {"score": completion.score}
    reason = completion.finish_reason
    return {"index": completion.index, "text": completion.text, "finish_reason": reason, **score}


def _failure(idx: int, line: str, message: str, param: str | None) -> dict[str, object]:
    return {**_identity(idx, line), "error": {"message": message, "param": param}}


def _identity(idx: int, line: str) -> dict[str, object]:
    """``index`` counts lines from 0, blank ones not; the caller's own ids come along."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    named = fields if isinstance(fields, dict) else {}
    return {"index": idx, **{key: named[key] for key in ("id", "custom_id") if key in named}}


def _write_ready(out: TextIO, replies: dict[int, dict[str, object]], num_written: int) -> int:
    while num_written in replies:
        out.write(_to_line(replies.pop(num_written), out.encoding or "utf-8"))
        num_written += 1
    out.flush()
    return num_written


def _to_line(reply: dict[str, object], encoding: str) -> str:
    """Readable where the file can hold it; lone surrogates and foreign letters are escaped."""
    text = json.dumps(reply, ensure_ascii=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = json.dumps(reply)
    return text + "\n"


def _read_lines(file: str) -> list[str]:
    """All lines with something on them; a first byte order mark is not part of the data."""
    try:
        if file == "-":
            text = sys.stdin.read()
        else:
            text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"cannot read {file}: {error}") from error
    # Only "\n" ends a line of JSON Lines: str.splitlines would cut at separators inside strings.
    return [line for line in text.split("\n") if line.strip()]


@contextmanager
def _open_output(output: str) -> Iterator[TextIO]:
    """Opened before the model is loaded, so that a bad path costs no time."""
    if output == "-":
        yield sys.stdout
        return
    try:
        out = Path(output).open("w", encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"cannot write {output}: {error.strerror or error}") from error
    with out:
        yield out
