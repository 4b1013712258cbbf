# SPDX-License-Identifier: Apache-2.0
"""octavo's server beside llama.cpp's: one GGUF file, the same load, one run.

Each server runs alone, on the same number of threads, and gets the same requests from ``octavo
bench serve``; rounds alternate between servers, so drift of the machine hits all alike. The table
gives medians over the rounds, and the last line is one JSON document for programs.

    python benchmarks/serve_compare.py --peer-python /tmp/peers/bin/python
    python benchmarks/serve_compare.py --smoke          # seconds; what the test suite runs

The peer is a ``llama-server`` binary if one is on PATH (it batches requests), else
``python -m llama_cpp.server`` in the interpreter given (it answers one request at a time).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compare import machine

START_LIMIT_S = 180
STOP_LIMIT_S = 30

# Row of the table, key of the result, whether less is better: None is neither, and must agree.
ROWS = (
    ("output tokens/s", "output_throughput", False),
    ("requests/s", "request_throughput", False),
    ("TTFT mean, ms", "mean_ttft_ms", True),
    ("TTFT p99, ms", "p99_ttft_ms", True),
    ("TPOT mean, ms", "mean_tpot_ms", True),
    ("ITL p99, ms", "p99_itl_ms", True),
    ("whole answer mean, ms", "mean_e2el_ms", True),
    ("output tokens", "total_output_tokens", None),
    ("failed requests", "failed", None),
)


@dataclass(frozen=True)
class Load:
    """Random words: lengths in tokens, ``concurrency`` requests open at a time."""

    name: str
    num_prompts: int
    input_len: int
    output_len: int
    concurrency: int
    prefix_len: int = 0


FULL = (
    Load("1 at a time", 8, 128, 64, 1),
    Load("8 at a time", 32, 128, 64, 8),
    Load("32 at a time", 64, 128, 64, 32),
    Load("8 at a time, 500 shared tokens", 32, 64, 64, 8, 500),
)
SMOKE = (Load("2 at a time", 3, 12, 4, 2),)


@dataclass(frozen=True)
class Kind:
    """A server that can be started: ``command`` without its port. ``sends_min_tokens``: answers of
    full length are asked for in this way too, for a server without ``ignore_eos``."""

    name: str
    command: tuple[str, ...]
    sends_min_tokens: bool = False


def kinds(args: argparse.Namespace, loads: Sequence[Load]) -> list[Kind]:
    model, threads = args.model, str(args.threads)
    num_slots = max(load.concurrency for load in loads)
    context = max(load.input_len + load.prefix_len + load.output_len for load in loads) + 64
    octavo = (sys.executable, "-m", "octavo", "serve", model, "--threads", threads)
    found = [Kind("octavo", (*octavo, "--max-model-len", str(context)))]
    binary = args.llama_server or shutil.which("llama-server")
    if binary:
        size = ("-c", str(context * num_slots), "-np", str(num_slots), "-cb")
        command = (binary, "-m", model, "-t", threads, "-tb", threads, *size)
        found.append(Kind("llama-server", command))
    elif args.peer_python:
        server = (args.peer_python, "-m", "llama_cpp.server", "--model", model)
        # Else a new request cuts off the answer that runs.
        polite = ("--interrupt_requests", "false")
        size = ("--n_ctx", str(context), "--n_threads", threads, "--n_threads_batch", threads)
        found.append(Kind("llama_cpp.server", (*server, *size, *polite), args.peer_min_tokens))
    return found


class Server:
    """A context manager: a started server that answers, and is ended with SIGTERM."""

    def __init__(self, kind: Kind, log: Path) -> None:
        self.kind = kind
        self._log = log
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Server:
        command = [*self.kind.command, "--host", "127.0.0.1", "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(command, stdout=log, stderr=log)
        give_up_s = time.monotonic() + START_LIMIT_S
        while not self._is_ready():
            if self._child.poll() is not None or time.monotonic() > give_up_s:
                self.__exit__()
                last = self._log.read_text(errors="replace")[-2000:]
                raise SystemExit(f"{self.kind.name} does not start:\n{last}")
            time.sleep(0.1)
        return self

    def __exit__(self, *exc: object) -> None:
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _is_ready(self) -> bool:
        """Some servers list their models while they load them: an answer is the proof."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.url + "/v1/models", timeout=5) as reply:
                model = json.load(reply)["data"][0]["id"]
            body = json.dumps({"model": model, "prompt": "Hi", "max_tokens": 1}).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(self.url + "/v1/completions", body, headers)
            with opener.open(request, timeout=60) as reply:
                return reply.status == 200
        except (OSError, urllib.error.URLError, ValueError, LookupError):
            return False


def measure(server: Server, load: Load, args: argparse.Namespace, seed: int) -> dict[str, float]:
    """One run of ``octavo bench serve``. Prompts are counted with the file's own tokenizer, so
    that they are the same for every server."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "octavo", "bench", "serve", "--base-url", server.url]
        command += ["--tokenizer", args.model, "--num-prompts", str(load.num_prompts)]
        command += ["--random-input-len", str(load.input_len), "--seed", str(seed)]
        command += ["--random-output-len", str(load.output_len), "--ignore-eos"]
        command += ["--random-prefix-len", str(load.prefix_len)]
        command += ["--max-concurrency", str(load.concurrency), "--num-warmups", "1"]
        if server.kind.sends_min_tokens:
            command += ["--extra-body", json.dumps({"min_tokens": load.output_len})]
        command += ["--no-progress", "--save-result"]
        command += ["--result-dir", folder, "--result-filename", "out.json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{server.kind.name}, {load.name}:\n{done.stdout}\n{done.stderr}")
        for line in done.stderr.splitlines():
            if line.startswith("note: the server refuses"):
                print(f"{server.kind.name}: {line}", file=sys.stderr)
        return json.loads((Path(folder) / "out.json").read_text())  # type: ignore[no-any-return]


def run(
    found: Sequence[Kind], loads: Sequence[Load], args: argparse.Namespace
) -> dict[str, dict[str, list[dict[str, float]]]]:
    """{load: {server: a result per round}}. A server that is not measured is not running."""
    results = {load.name: {kind.name: [] for kind in found} for load in loads}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.repeats):
            for kind in found:
                with Server(kind, Path(folder) / f"{kind.name}.log") as server:
                    for load in loads:
                        result = measure(server, load, args, seed=number)
                        results[load.name][kind.name].append(result)
                        print(f"round {number + 1}: {kind.name}, {load.name}", file=sys.stderr)
    return results


def print_table(results: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    """One table; the ratio is above 1 where octavo is better."""
    names = list(next(iter(results.values())))
    print("| load | median | " + " | ".join(names) + " | octavo is better by |")
    print("|---|---|" + "---:|" * (len(names) + 1))
    for load, rounds in results.items():
        for title, key, is_less_better in ROWS:
            values = [statistics.median(one[key] for one in rounds[name]) for name in names]
            ratio = "-"
            if len(values) > 1 and min(values) > 0 and is_less_better is not None:
                ours, theirs = values[0], values[1]
                ratio = f"{theirs / ours if is_less_better else ours / theirs:.2f}"
            cells = " | ".join(f"{value:.1f}" for value in values)
            print(f"| {load} | {title} | {cells} | {ratio} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="a .gguf file; default: smollm2-135m")
    parser.add_argument("--peer-python", help="interpreter with llama-cpp-python[server]")
    parser.add_argument("--llama-server", help="path of a llama-server binary")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--peer-min-tokens",
        action="store_true",
        help="if llama_cpp.server's output tokens are fewer: it ignores ignore_eos. Costs it a "
        "call of Python per token",
    )
    parser.add_argument("--smoke", action="store_true", help="one tiny load, one round")
    args = parser.parse_args()
    if args.model is None:
        from octavo import hub

        args.model = str(hub.resolve("smollm2-135m").path)
    loads = SMOKE if args.smoke else FULL
    if args.smoke:
        args.repeats = 1
    found = kinds(args, loads)
    if len(found) == 1:
        print("no peer: give --peer-python or --llama-server", file=sys.stderr)
    results = run(found, loads, args)
    print_table(results)
    about = {**machine(), "model": args.model, "threads": args.threads, "repeats": args.repeats}
    print(json.dumps({"about": about, "results": results}))


if __name__ == "__main__":
    main()
