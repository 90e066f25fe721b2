"""Spans of requests, their queues, batches, workers and of plans, through OpenTelemetry's API.

    gateway -> infer -> queue
                     -> batch -> worker -> what the user's model calls

A batch belongs to the trace of its first sampled request and has links to the requests of other
traces; the queue span of every request has a link to its batch. `tracing` says whether this module
is imported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import migrator
from migrator.core.errors import InputError
from migrator.serving.tracing import HEADERS
from migrator.serving.workers.messages import Answered

_GROUP = "opentelemetry_traces_exporter"
"""Entry points of all exporters that are installed."""
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_W3C = TraceContextTextMapPropagator()
_LONGEST = 128
"""Characters of an attribute that a client chose."""
_FAILED = 500


def exporting(service: str, exporters: Sequence[str]) -> Tracing:
    """Tracing to these exporters. Sampling, batching and addresses are read from the environment
    by the SDK."""
    # it warns of every header that is invalid, with the header, and any client may send such ones
    logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)
    resource = Resource.create({"service.name": service, "service.version": migrator.__version__})
    provider = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()))
    for name in exporters:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    return Tracing(provider)


def _exporter(name: str) -> Any:
    entry = name
    if name == "otlp":
        protocols = [os.environ[key] for key in _PROTOCOLS if os.environ.get(key)]
        protocol = (*protocols, "http/protobuf")[0]
        if protocol not in _OTLP:
            raise InputError(
                f"{_PROTOCOLS[1]}: {protocol[:80]} is unknown; use one of {', '.join(_OTLP)}"
            )
        entry = _OTLP[protocol]
    matching = entry_points(group=_GROUP, name=entry)
    if not matching:
        installed = ", ".join(sorted({point.name for point in entry_points(group=_GROUP)}))
        raise InputError(
            f"OTEL_TRACES_EXPORTER: no exporter {entry[:80]} is installed, only {installed}; "
            f"pip install opentelemetry-exporter-{entry[:80].replace('_', '-')}, or name another"
        )
    try:
        return next(iter(matching)).load()()
    except Exception as error:  # whatever an exporter raises for its own variables
        raise InputError(f"OTEL_TRACES_EXPORTER: {name} cannot be used ({error})") from error


@dataclass(frozen=True, slots=True)
class QueuedSpans:
    """Spans of a request that waits for an answer."""

    request: Span
    queue: Span


class BatchSpans:
    """Spans of a batch, from when it is sent to a worker."""

    def __init__(self, batch: Span, worker: Span) -> None:
        self._batch, self._worker = batch, worker

    @property
    def context(self) -> dict[str, str]:
        """The trace context for the worker's process."""
        return _injected(self._worker)

    def end(self, answered: Answered | None) -> None:
        """End both; None: the worker did not answer."""
        if answered is None:
            for span in (self._worker, self._batch):
                span.set_status(StatusCode.ERROR, "the worker did not answer")
            self._worker.end()
        else:
            self._worker.set_attribute("migrator.version", answered.version)
            if answered.began_s:
                self._worker.add_event("begins", timestamp=_unix_ns(answered.began_s))
            self._worker.end(_unix_ns(answered.ended_s) if answered.ended_s else None)
        self._batch.end()


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("migrator", migrator.__version__)

    def close(self) -> None:
        self._provider.shutdown()

    @contextmanager
    def request(self, name: str, headers: Mapping[bytes, bytes], tenant: str) -> Iterator[Span]:
        """The span of a request, in the trace of its client where it names one."""
        carrier = {
            key: str(headers[key.encode()], "latin-1") for key in HEADERS if key.encode() in headers
        }
        with self._tracer.start_as_current_span(
            name,
            _W3C.extract(carrier, Context()),
            kind=SpanKind.SERVER,
            attributes={"migrator.tenant": tenant[:_LONGEST]},
        ) as span:
            yield span

    def answered(self, span: Span, status: int, request_id: str = "") -> None:
        span.set_attribute("http.response.status_code", status)
        if request_id:
            span.set_attribute("migrator.request_id", request_id)
        if status >= _FAILED:
            span.set_status(StatusCode.ERROR)

    def passed_on(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Headers of a request that is forwarded, with the current span as its parent."""
        context = [
            (key.encode(), value.encode()) for key, value in _injected(get_current_span()).items()
        ]
        return [header for header in headers if str(header[0], "latin-1") not in HEADERS] + context

    def queued(self, answer: asyncio.Future[Any]) -> QueuedSpans:
        """Begin to wait for the answer to the current request."""
        queue = self._tracer.start_span("queue")

        def end(_: object) -> None:
            if queue.is_recording():  # it was refused or left before a worker took it
                queue.end()

        answer.add_done_callback(end)
        return QueuedSpans(get_current_span(), queue)

    def batch(
        self, requests: Sequence[QueuedSpans], attributes: Mapping[str, str | int]
    ) -> BatchSpans:
        """Begin a batch of these requests; its time in the queue is over."""
        first = next((spans for spans in requests if _sampled(spans.request)), requests[0])
        links = [Link(spans.request.get_span_context()) for spans in requests if spans is not first]
        batch = self._tracer.start_span(
            "batch",
            set_span_in_context(first.request, Context()),
            SpanKind.INTERNAL,
            attributes,
            links,
        )
        for spans in requests:
            if spans.queue.is_recording():
                spans.queue.add_link(batch.get_span_context())
                spans.queue.end()
        worker = self._tracer.start_span(
            "worker", set_span_in_context(batch, Context()), SpanKind.CLIENT, attributes
        )
        return BatchSpans(batch, worker)

    def plan(self, seconds: float, fields: Mapping[str, object]) -> None:
        """A plan that was requested that many seconds ago and is followed from now on."""
        now_ns = time.time_ns()
        attributes = {
            f"migrator.{key}": value
            for key, value in fields.items()
            if isinstance(value, str | int | float)
        }
        span = self._tracer.start_span(
            "plan", Context(), attributes=attributes, start_time=now_ns - round(seconds * 1e9)
        )
        span.end(now_ns)


@contextmanager
def continued(context: Mapping[str, str]) -> Iterator[None]:
    """What runs inside belongs to the trace with that context."""
    token = current.attach(_W3C.extract(context, Context()))
    try:
        yield
    finally:
        current.detach(token)


def _injected(span: Span) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span, Context()))
    return carrier


def _sampled(span: Span) -> bool:
    return bool(span.get_span_context().trace_flags.sampled)


def _unix_ns(monotonic_s: float) -> int:
    return time.time_ns() - round((time.monotonic() - monotonic_s) * 1e9)
