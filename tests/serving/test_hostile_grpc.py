"""Clients of the gRPC port that are made to do harm: refused at a bounded cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from support.api_server import SIDE, connected, memory_mib, running_server
from support.waiting import LIMIT_S, until

from migrator.serving.grpc.messages import message_classes
from migrator.serving.grpc.receiving import Receiver
from migrator.serving.grpc.server import NOT_SERVING, SERVING

grpc: Any = import_module("grpc")
MESSAGES = message_classes()
INFER = "/inference.GRPCInferenceService/ModelInfer"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
MIB = 2**20


@contextmanager
def running(**settings: Any) -> Iterator[tuple[str, str, int]]:
    """A server: its address over HTTP and over gRPC, and its process."""
    with running_server(grpc=True, **settings) as (url, process):
        assert process.stdout is not None
        yield url, process.stdout.readline().strip(), process.pid


@contextmanager
def calling(address: str, path: str, **options: Any) -> Iterator[Any]:
    """A call that sends bytes and returns bytes."""
    with grpc.insecure_channel(address, **options) as channel:
        yield channel.unary_unary(path)


def code_of(call: Any, message: bytes, **options: Any) -> str:
    """The status of a call that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call(message, timeout=LIMIT_S, **options)
    name: str = caught.value.code().name
    return name


def infer_message(tensor: bytes) -> bytes:
    request = MESSAGES["ModelInferRequest"](model_name="images")
    request.inputs.add(name="input", datatype="UINT8", shape=[1, 3, SIDE, SIDE])
    request.raw_input_contents.append(tensor)
    message: bytes = request.SerializeToString()
    return message


GOOD = infer_message(bytes(3 * SIDE**2))


def test_what_is_no_message_is_an_invalid_argument() -> None:
    """The end of the server looks for tracebacks in its log."""
    with running() as (_, address, _), calling(address, INFER) as call:
        for message in (b"\xff" * 50, b"\x0a\x05a", b"\x0a\x01\xff"):
            assert code_of(call, message) == "INVALID_ARGUMENT"
        assert call(GOOD)


def test_log_lines_of_malformed_messages_are_limited(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(log=str(log)) as (_, address, _), calling(address, INFER) as call:
        begun_s = time.monotonic()
        for _ in range(200):
            code_of(call, b"\xff")
        seconds = time.monotonic() - begun_s
    lines = log.read_text(encoding="utf-8").splitlines()
    assert "gRPC call ModelInfer refused with 400" in lines[0]
    assert len(lines) <= 5 * (seconds + 2)


@pytest.mark.parametrize(
    "message",
    [b"\x2a\x00" * 300_000, b"\x22\x00" * 300_000, b"\x2a\xc0\xcf\x24" + b"\x22\x00" * 300_000],
    ids=["inputs", "parameters", "parameters of an input"],
)
def test_many_empty_fields_are_not_decoded(message: bytes) -> None:
    with running() as (_, address, pid), calling(address, INFER) as call:
        call(GOOD)
        before_mib = memory_mib(pid, "VmHWM:")
        assert code_of(call, message) == "INVALID_ARGUMENT"
        assert memory_mib(pid, "VmHWM:") - before_mib < 10


def costly(kind: str) -> bytes:
    """A message for a tenant that exists which is small to send and large once it is decoded."""
    request = MESSAGES["ModelInferRequest"](model_name="images")
    tensor = request.inputs.add(name="input", datatype="UINT8", shape=[1, 3, SIDE, SIDE])
    if kind == "a group and inputs":
        return bytes(request.SerializeToString() + b"\xa3\x06\xa4\x06" + b"\x2a\x00" * 300_000)
    if kind == "shape":
        tensor.shape.extend([1] * MIB)
    elif kind == "id":
        request.id = "x" * MIB
    elif kind == "numbers":
        tensor.contents.uint_contents.extend([7] * MIB)
    elif kind == "parameters of an output":
        output = request.outputs.add(name="scores")
        for number in range(20_000):
            output.parameters[str(number)].bool_param = True
    else:
        request.inputs.extend([tensor] * 1000)
    return bytes(request.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("a group and inputs", "group"),
        ("shape", "beside its tensors"),
        ("id", "beside its tensors"),
        ("numbers", "bytes of numbers"),
        ("parameters of an output", "beside its tensors"),
        ("inputs", "send 1 to 64 of them"),
    ],
)
def test_messages_that_cost_more_to_decode_than_to_send_are_refused(kind: str, why: str) -> None:
    with running() as (_, address, _), calling(address, INFER) as call:
        with pytest.raises(grpc.RpcError) as caught:
            call(costly(kind), timeout=LIMIT_S)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert why in caught.value.details()
        assert call(GOOD)


async def test_large_messages_are_decoded_one_at_a_time() -> None:
    """Whatever else the event loop has to do is done in between."""
    turn, decoded_in, receiver = 0, list[int](), Receiver(8, LIMIT_S)

    class Call:
        async def read(self) -> bytes:
            return infer_message(bytes(MIB))

    def decode(_message: bytes) -> None:
        decoded_in.append(turn)

    real = MESSAGES["ModelInferRequest"]
    kind = SimpleNamespace(DESCRIPTOR=real.DESCRIPTOR, FromString=decode)
    tasks = [asyncio.create_task(receiver.receive(Call(), kind)) for _ in range(8)]
    while not all(task.done() for task in tasks):
        turn += 1
        await asyncio.sleep(0)
    assert len(set(decoded_in)) == len(decoded_in) == 8


def test_refused_messages_do_not_wait_for_their_clients() -> None:
    """Each takes 0.8 MiB once it is decoded."""
    message = b"\x2a\x00" * 8000
    with running() as (_, address, pid), calling(address, INFER) as call:
        call(GOOD)
        before_mib = memory_mib(pid, "VmHWM:")
        futures = [call.future(message, timeout=LIMIT_S) for _ in range(200)]
        assert "INVALID_ARGUMENT" in {future.code().name for future in futures}
        assert memory_mib(pid, "VmHWM:") - before_mib < 64


def test_compressed_messages_are_refused() -> None:
    with running() as (_, address, pid):
        with calling(address, INFER, compression=grpc.Compression.Gzip) as call:
            before_mib = memory_mib(pid, "VmHWM:")
            assert code_of(call, bytes(64 * MIB)) == "UNIMPLEMENTED"
            assert memory_mib(pid, "VmHWM:") - before_mib < 32
        with calling(address, INFER) as call:
            assert call(GOOD)


def test_messages_are_not_received_before_their_token_is_checked() -> None:
    large = infer_message(bytes(8 * MIB))
    with running(tokens={"images": "right"}) as (_, address, pid):
        with calling(address, INFER) as call:
            call(GOOD, metadata=(("authorization", "Bearer right"),))
            before_mib = memory_mib(pid, "VmHWM:")
            futures = [call.future(large) for _ in range(24)]
            assert {future.code().name for future in futures} == {"UNAUTHENTICATED"}
        assert memory_mib(pid, "VmHWM:") - before_mib < 40


def test_messages_that_never_end_give_way_to_others() -> None:
    limits = {"body_bytes": MIB, "bodies_bytes": 2 * MIB, "body_s": LIMIT_S}

    unsent: Queue[bytes | None] = Queue()
    with running(limits=limits) as (_, address, _), ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(address))
        slow = [channel.stream_unary(INFER).future(iter(unsent.get, None)) for _ in range(5)]
        call = stack.enter_context(calling(address, INFER))
        assert call(GOOD, timeout=LIMIT_S / 2)
        for future in slow:
            future.cancel()
            unsent.put(None)


def test_open_connections_are_limited_and_do_not_end_http() -> None:
    limits = {"header_s": 5.0}
    with running(files=300, limits=limits) as (url, address, _), ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(connected(address))
        assert httpx.get(f"{url}/v2/health/live").status_code == 200

        def answers() -> bool:
            with grpc.insecure_channel(address) as channel:
                try:
                    return bool(channel.unary_unary(INFER)(GOOD, timeout=5))
                except grpc.RpcError:
                    return False

        until(answers)  # the others are closed as they say nothing


def test_idle_connections_are_closed() -> None:
    with running(limits={"keep_alive_s": 1}) as (url, address, _), ExitStack() as stack:
        before = open_files(url)
        for _ in range(10):
            call = stack.enter_context(
                calling(address, INFER, options=[("grpc.use_local_subchannel_pool", 1)])
            )
            assert call(GOOD)
        assert open_files(url) >= before + 10
        until(lambda: open_files(url) <= before)
        assert call(GOOD)  # connects again


def open_files(url: str) -> int:
    return int(httpx.get(f"{url}/admin/status").json()["files"])


@pytest.mark.parametrize("ready", [True, False])
def test_health_as_load_balancers_ask_for_it(ready: bool) -> None:
    answer = MESSAGES["HealthCheckResponse"]
    wanted = answer(status=SERVING if ready else NOT_SERVING)
    settings = {"tokens": {"images": "right"}, "ready": ["images", "texts"] if ready else []}
    with running(**settings) as (_, address, _), grpc.insecure_channel(address) as channel:
        check = channel.unary_unary(CHECK, response_deserializer=answer.FromString)
        for service in ("", "inference.GRPCInferenceService"):
            request = MESSAGES["HealthCheckRequest"](service=service).SerializeToString()
            assert check(request) == wanted
        unknown = MESSAGES["HealthCheckRequest"](service="nobody").SerializeToString()
        assert code_of(check, unknown) == "NOT_FOUND"
        watch = channel.unary_stream(WATCH, response_deserializer=answer.FromString)(b"")
        assert next(watch) == wanted
        watch.cancel()
