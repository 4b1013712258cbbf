# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from serverkit import ANSWER, MODEL, ReciteEngine, connect, make_app

from enginekit import make_engine
from fakes import ByteTokenizer, EchoExecutor
from octavo.engine.async_engine import AsyncEngine
from octavo.server.app import build_app
from octavo.server.config import ServerConfig
from octavo.server.keys import Keyring
from octavo.server.operations import Operations
from octavo.server.tracing import Tracing
from octavo.server.tracing import connect as connect_to
from octavo.types.errors import InvalidConfig

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"
COMPLETIONS = "/v1/completions"


class Traced:
    """Operations whose spans land in a list."""

    def __init__(self, keyring: Keyring | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracing = Tracing(SimpleSpanProcessor(self.exporter))
        self.around = Operations(tracing=self.tracing, keyring=keyring or Keyring())

    def spans(self):
        return self.exporter.get_finished_spans()


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_a_span_of_its_clients_trace(stream):
    traced = Traced(Keyring.collect(["sk-1"]))
    body = {"prompt": "Hi", "max_tokens": 100, "temperature": 0.5, "stream": stream}
    headers = {"traceparent": PARENT, "x-request-id": "mine", "x-api-key": "sk-1"}
    async with connect(make_app(around=traced.around)) as client:
        await client.post(COMPLETIONS, json=body, headers=headers)
    (span,) = traced.spans()
    assert (span.name, span.kind) == ("llm_request", SpanKind.SERVER)
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert f"{span.parent.span_id:016x}" == PARENT_ID
    expected = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.request.id": "mine",
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.n": 1,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.model": MODEL,
        "gen_ai.usage.completion_tokens": len(ANSWER.encode()) + 1,
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.num_sequences": 1,
        "gen_ai.usage.output_tokens": len(ANSWER.encode()) + 1,
        "gen_ai.usage.prompt_tokens": 3,
        "http.response.status_code": 200,
        "enduser.id": "key-1",
    }
    assert expected.items() <= dict(span.attributes).items()
    seconds = (span.end_time - span.start_time) / 1e9
    assert span.attributes["gen_ai.latency.e2e"] == pytest.approx(seconds)
    assert "Hi" not in str(dict(span.attributes))
    assert span.status.is_unset


@pytest.mark.anyio
async def test_the_engines_times_are_in_it():
    traced = Traced()
    engine = AsyncEngine(make_engine(EchoExecutor(num_blocks=64)))
    engine.start()
    try:
        app = build_app(engine, ByteTokenizer(), model_name="echo", around=traced.around)
        async with connect(app) as client:
            body = {"prompt": "Hello", "max_tokens": 8, "temperature": 0}
            assert (await client.post(COMPLETIONS, json=body)).status_code == 200
    finally:
        engine.shutdown()
    (span,) = traced.spans()
    times = {
        name.removeprefix("gen_ai.latency."): value
        for name, value in span.attributes.items()
        if name.startswith("gen_ai.latency.")
    }
    phases = ("time_in_queue", "time_in_model_prefill", "time_in_model_decode")
    assert times.keys() >= {*phases, "time_to_first_token", "time_in_model_inference", "e2e"}
    assert all(value >= 0.0 for value in times.values())
    assert sum(times[name] for name in phases) <= times["e2e"]
    both = times["time_in_model_prefill"] + times["time_in_model_decode"]
    assert times["time_in_model_inference"] == pytest.approx(both)


@pytest.mark.anyio
@pytest.mark.parametrize("header", [None, "", "00-zz-zz-01", "x" * 5000])
async def test_a_bad_parent_is_none(header):
    traced = Traced()
    headers = {} if header is None else {"traceparent": header}
    async with connect(make_app(around=traced.around)) as client:
        await client.post(COMPLETIONS, json={"prompt": "Hi"}, headers=headers)
    (span,) = traced.spans()
    assert span.parent is None


@pytest.mark.anyio
async def test_failures_are_errors_and_what_never_ran_is_no_span():
    traced = Traced()
    async with connect(make_app(ReciteEngine(fail_after=2), around=traced.around)) as client:
        await client.get("/health")
        await client.post(COMPLETIONS, json={"prompt": 5})
        assert traced.spans() == ()
        await client.post(COMPLETIONS, json={"prompt": "Hi"})
    (span,) = traced.spans()
    assert not span.status.is_ok
    assert not span.status.is_unset
    assert span.attributes["gen_ai.usage.output_tokens"] == 2


@pytest.mark.anyio
async def test_a_trace_that_cannot_be_written_fails_no_request(caplog):
    class Broken(SimpleSpanProcessor):
        def on_start(self, span, parent_context=None):
            raise RuntimeError("full")

    around = Operations(tracing=Tracing(Broken(InMemorySpanExporter())))
    async with connect(make_app(around=around)) as client:
        assert (await client.post(COMPLETIONS, json={"prompt": "Hi"})).status_code == 200
    assert "cannot record request" in caplog.text


class Collector(BaseHTTPRequestHandler):
    bodies: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        self.server.bodies.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Not on the terminal."""


@pytest.mark.anyio
async def test_a_collector_gets_them_at_the_usual_path(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        server.bodies = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        config = ServerConfig(otlp_traces_endpoint=f"http://127.0.0.1:{server.server_port}")
        around = Operations.prepare(config)
        async with connect(make_app(around=around)) as client:
            await client.post(COMPLETIONS, json={"prompt": "Hi"})
        around.close()
        server.shutdown()
        thread.join()
    ((path, body),) = server.bodies  # type: ignore[attr-defined]
    assert path == "/v1/traces"
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert resource.scope_spans[0].spans[0].name == "llm_request"


def test_without_the_extra_there_is_a_clear_error(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("opentelemetry.exporter")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'octavo\[otel\]'"):
        connect_to("http://127.0.0.1:4318")


@pytest.mark.parametrize("url", ["localhost:4317", "grpc://a:1", "http://"])
def test_what_is_no_url_is_a_clear_error(url):
    with pytest.raises(InvalidConfig, match="otlp_traces_endpoint must be an http or https URL"):
        ServerConfig(otlp_traces_endpoint=url)
