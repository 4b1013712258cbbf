# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans: one for each request that generates, as a part of its client's trace.

A span is written when its request is over, with the times that it had, so that tracing costs a
running request nothing. It has the attributes of the conventions for generative AI, and vLLM's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from octavo.server.exchange import Exchange
from octavo.types.errors import InvalidConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

SPAN = "llm_request"
FLUSH_MS = 5000  # at the end, for a collector that does not answer
OPERATIONS = {"/v1/completions": "text_completion"}

# vLLM's names for what a timeline has under ours.
_LATENCIES = {
    "time_in_queue": ("queue_s",),
    "time_to_first_token": ("time_to_first_token_s",),
    "time_in_model_prefill": ("prefill_s",),
    "time_in_model_decode": ("decode_s",),
    "time_in_model_inference": ("prefill_s", "decode_s"),
    "time_swapped": ("swapped_s",),
    "time_stalled": ("stalled_s",),
}

Attribute = str | int | float | list[str]


class Tracing:
    """Hands spans to a processor. Safe in any thread."""

    def __init__(self, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create({"service.name": "octavo"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("octavo")
        self._propagator = TraceContextTextMapPropagator()

    def record(self, exchange: Exchange, headers: Headers, *, model_name: str) -> None:
        """Write the span of an exchange that is over, if it has run anything."""
        if not exchange.jobs:
            return
        from opentelemetry.trace import SpanKind, Status, StatusCode

        ended_ns = exchange.started_ns + round(1e9 * (time.monotonic() - exchange.started_s))
        span = self._tracer.start_span(
            SPAN,
            context=self._propagator.extract(dict(headers.items())),
            kind=SpanKind.SERVER,
            start_time=exchange.started_ns,
            attributes=attributes(exchange, model_name),
        )
        span.set_attribute("gen_ai.latency.e2e", (ended_ns - exchange.started_ns) / 1e9)
        if exchange.status >= 500 or not exchange.is_complete:
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended_ns)

    def close(self) -> None:
        """Hand over what is left, for some seconds at most."""
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()


def connect(endpoint: str) -> Tracing:
    """Send to ``endpoint``, in the background. Close it in the end.

    Raises ``InvalidConfig`` without the extra ``otel``. A URL without a path gets the usual one.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise InvalidConfig(
            "otlp_traces_endpoint needs OpenTelemetry: pip install 'octavo[otel]'"
        ) from None
    has_path = endpoint.rstrip("/").count("/") > 2
    url = endpoint if has_path else endpoint.rstrip("/") + "/v1/traces"
    return Tracing(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=FLUSH_MS / 1e3)))


def attributes(exchange: Exchange, model_name: str) -> dict[str, Attribute]:
    """What a span says. Nothing of the prompt or of the answer."""
    usage, times = exchange.usage(), exchange.times()
    found: dict[str, Attribute] = {
        "gen_ai.operation.name": OPERATIONS.get(exchange.route, "chat"),
        "gen_ai.provider.name": "octavo",
        "gen_ai.request.id": exchange.request_id,
        "gen_ai.request.model": model_name,
        "gen_ai.response.model": model_name,
        "gen_ai.response.finish_reasons": exchange.finish_reasons(),
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.prompt_tokens": usage.prompt_tokens,
        "gen_ai.usage.completion_tokens": usage.completion_tokens,
        "gen_ai.usage.cached_tokens": usage.cached_tokens,
        "gen_ai.usage.num_sequences": sum(job.num_choices for job in exchange.jobs),
        "http.request.method": exchange.method,
        "http.route": exchange.route,
        "http.response.status_code": exchange.status,
    }
    if exchange.user is not None:
        found["enduser.id"] = exchange.user
    for name, parts in _LATENCIES.items():
        if all(part in times for part in parts):
            found[f"gen_ai.latency.{name}"] = sum(times[part] for part in parts)
    return found | _asked(exchange)


def _asked(exchange: Exchange) -> dict[str, Attribute]:
    params = exchange.jobs[0].requests[0].params
    wanted: dict[str, Attribute | None] = {
        name: getattr(params, name, None) for name in ("temperature", "top_p", "max_tokens", "n")
    }
    return {f"gen_ai.request.{name}": value for name, value in wanted.items() if value is not None}
