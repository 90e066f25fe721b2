"""Traces of requests: from a client's header to the worker, over HTTP and gRPC."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext
from support import PYTHONPATH
from support.api_server import CLASSES, api_state, image_body, triton_image
from support.serving import assignment, pictures, started
from support.stand_in_worker import POISON, StandInWorker
from support.waiting import until_async

from migrator.core.errors import InputError
from migrator.serving.http.access import Tokens
from migrator.serving.http.app import application
from migrator.serving.http.server import ApiServer, new_grpc_server
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router
from migrator.serving.spans import Tracing, exporting
from migrator.serving.tracing import open_tracing
from migrator.serving.workers.messages import WorkerLostError

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
ROUTE = "/v2/models/images/infer"


class Memory:
    """Spans that ended, and what makes them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


def identity(span: ReadableSpan) -> SpanContext:
    """Of a span that has one."""
    context: SpanContext | None = span.context
    assert context is not None
    return context


def trace_of(span: ReadableSpan) -> str:
    return f"{identity(span).trace_id:032x}"


def parent_of(span: ReadableSpan) -> str:
    return "" if span.parent is None else f"{span.parent.span_id:016x}"


def id_of(span: ReadableSpan) -> str:
    return f"{identity(span).span_id:016x}"


def attribute(span: ReadableSpan, key: str) -> Any:
    return (span.attributes or {})[key]


class Daemon:
    """A server with a stand-in worker, its spans, and a client."""

    def __init__(self, memory: Memory, **settings: Any) -> None:
        self.worker = StandInWorker("w1", classes=CLASSES, version=7)
        names = ("images", "texts")
        router = Router(
            {name: QueueSettings(name, settings.get("slo_s", 30.0), 4) for name in names}
        )
        router.tracing = memory.tracing
        if settings.get("ready", True):
            router.attach("images", self.worker, lambda _: 0.0, place="3g@0")
        state = api_state(settings, router)
        self.server = ApiServer(application(state), tokens=state.tokens, port=0)
        self.state = state
        self.client = httpx.AsyncClient(timeout=30)

    async def infer(
        self, value: int = 0, headers: dict[bytes, bytes] | dict[str, str] | None = None
    ) -> httpx.Response:
        url = f"{self.server.url}{ROUTE}"
        return await self.client.post(url, json=image_body(value), headers=headers)


@asynccontextmanager
async def daemon(memory: Memory, **settings: Any) -> AsyncIterator[Daemon]:
    made = Daemon(memory, **settings)
    await made.server.start()
    try:
        yield made
    finally:
        await made.client.aclose()
        await made.server.stop()


async def test_a_request_is_traced_from_its_client_to_the_worker() -> None:
    memory = Memory()
    async with daemon(memory) as serving:
        headers = {**TRACEPARENT, "tracestate": "shop=7", "x-request-id": "r1"}
        assert (await serving.infer(headers=headers)).status_code == 200
    request, queue = memory.one("infer"), memory.one("queue")
    batch, worker = memory.one("batch"), memory.one("worker")
    assert {trace_of(span) for span in memory.spans} == {TRACE}
    assert parent_of(request) == PARENT
    assert parent_of(queue) == parent_of(batch) == id_of(request)
    assert parent_of(worker) == id_of(batch)
    assert serving.worker.trace_contexts == [
        {"traceparent": f"00-{TRACE}-{id_of(worker)}-01", "tracestate": "shop=7"}
    ]
    assert attribute(request, "http.response.status_code") == 200
    assert attribute(request, "migrator.request_id") == "r1"
    assert attribute(batch, "migrator.tenant") == "images"
    assert attribute(batch, "migrator.instance") == "3g@0"
    assert (attribute(worker, "migrator.rows"), attribute(worker, "migrator.version")) == (1, 7)
    assert request.start_time is not None
    assert batch.start_time is not None
    assert request.start_time <= batch.start_time


async def test_a_batch_has_links_to_the_requests_of_other_traces() -> None:
    memory = Memory()
    async with daemon(memory) as serving:
        serving.worker.held.clear()
        first = asyncio.create_task(serving.infer())
        await serving.worker.begun.wait()
        router = serving.state.backend.router
        others = [asyncio.create_task(serving.infer()) for _ in range(3)]
        await until_async(lambda: router.waiting("images") == 3)
        serving.worker.held.set()
        await asyncio.gather(first, *others)
    assert serving.worker.batches == [1, 3]
    requests = {id_of(span): span for span in memory.named("infer")}
    assert len({trace_of(span) for span in requests.values()}) == 4
    batch = memory.named("batch")[1]
    linked = {f"{link.context.span_id:016x}" for link in batch.links}
    assert len(linked) == 2
    assert parent_of(batch) not in linked
    assert linked | {parent_of(batch)} <= requests.keys()
    waited = [span for span in memory.named("queue") if parent_of(span) in linked]
    for queue in waited:  # from the trace of each request to the batch that answered it
        assert [link.context.span_id for link in queue.links] == [identity(batch).span_id]


async def test_refused_and_failed_requests_say_so_and_their_time_in_the_queue_ends() -> None:
    memory = Memory()
    async with daemon(memory, slo_s=0.05, ready=False) as serving:
        assert (await serving.infer()).status_code == 503
    assert attribute(memory.one("infer"), "http.response.status_code") == 503
    assert not memory.one("infer").status.is_ok
    assert parent_of(memory.one("queue")) == id_of(memory.one("infer"))
    assert not memory.named("batch")
    failing = Memory()
    async with daemon(failing) as serving:
        assert (await serving.infer(POISON)).status_code == 500
        serving.worker.error = WorkerLostError("it was killed")
        lost = asyncio.create_task(serving.infer())
        await until_async(lambda: len(failing.named("batch")) == 2)
        other = StandInWorker("w2", classes=CLASSES)
        serving.state.backend.router.attach("images", other, lambda _: 0.0)
        assert (await lost).status_code == 200
    assert [span.status.is_ok for span in failing.named("batch")] == [False, False, True]
    assert [attribute(span, "migrator.worker") for span in failing.named("worker")] == [
        *("w1", "w1", "w2"),
    ]


async def test_strangers_leave_no_span_and_bad_headers_begin_a_trace() -> None:
    memory = Memory()
    async with daemon(memory, tokens={"images": "i" * 40}) as serving:
        assert (await serving.infer(headers=TRACEPARENT)).status_code == 401
        assert not memory.spans
        token = {b"authorization": b"Bearer " + b"i" * 40}
        for bad in ("00-0-0-01", "x" * 5000, f"00-{'0' * 32}-{PARENT}-01", "\xff"):
            headers = {**token, b"traceparent": bad.encode("latin-1")}
            assert (await serving.infer(headers=headers)).status_code == 200
    roots = memory.named("infer")
    assert [parent_of(span) for span in roots] == ["", "", "", ""]
    assert len({trace_of(span) for span in roots}) == 4


async def test_calls_over_grpc_bring_it_as_metadata() -> None:
    triton: Any = import_module("tritonclient.grpc.aio")
    memory = Memory()
    async with daemon(memory) as serving:
        state = serving.state
        server = new_grpc_server(application(state), "127.0.0.1", 0, state.limits, Tokens())
        await server.start()
        client = triton.InferenceServerClient(server.address)
        await client.infer("images", [triton_image(triton)], headers=TRACEPARENT)
        await client.close()
        await server.stop()
    assert parent_of(memory.one("infer")) == PARENT
    assert trace_of(memory.one("worker")) == TRACE


async def test_what_a_model_calls_belongs_to_the_trace_of_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    model = "support.served_models:Traced"
    async with started(tmp_path / "run", model) as workers:
        worker = await workers.take(assignment(model))
        none = await worker.infer(pictures())
        assert none.scores.max() == 0.0
        traced = await worker.infer(pictures(), "r1", TRACEPARENT)
        assert traced.scores.max() == float(int(TRACE, 16) % 256)
        after = await worker.infer(pictures())
        assert after.scores.max() == 0.0


def test_without_the_variable_nothing_is_traced_or_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = (
        "import sys, migrator.live.daemon, migrator.cluster.fleet.gateway\n"
        "import migrator.serving.grpc.server, migrator.serving.workers.worker\n"
        "from migrator.serving.tracing import open_tracing\n"
        "print(open_tracing('migrator'), *sys.modules)"
    )
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tracing, *modules = done.stdout.split()
    assert tracing == "None"
    assert not [name for name in modules if name.split(".")[0] == "opentelemetry"]
    for off in ("none", "", " , none"):
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", off)
        assert open_tracing("migrator") is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert open_tracing("migrator") is None


def test_an_exporter_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon")
    with pytest.raises(InputError, match="carrier-pigeon is unknown; use one of grpc"):
        exporting("migrator", ["otlp"])
    with pytest.raises(InputError, match=r"no exporter zipkin is installed, only .*console.* pip"):
        exporting("migrator", ["zipkin"])
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setitem(sys.modules, "migrator.serving.spans", None)
    with pytest.raises(InputError, match=r"pip install 'migrator-gpu\[otel\]'"):
        open_tracing("migrator")


def test_invalid_headers_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    valid, tracing = TRACEPARENT["traceparent"].encode(), exporting("migrator", ["console"])
    try:
        for headers in (
            {b"traceparent": b"0" * 30_000},
            {b"traceparent": b"00-\xff-\xff-01"},
            {b"traceparent": valid, b"tracestate": b"\xff=\xff"},
            {b"traceparent": valid, b"tracestate": b"a=b," * 8_000},
        ):
            with tracing.request("infer", headers, "images") as span:
                assert span.is_recording()
        assert not caplog.records
    finally:
        tracing.close()
