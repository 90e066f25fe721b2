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
from typing import Any, NamedTuple

import pytest
from support.api_server import SIDE, connected, memory_mib, running_server
from support.http_client import HTTP, status_of
from support.waiting import LIMIT_S, until

from migrator.serving.grpc.messages import message_classes
from migrator.serving.grpc.receiving import Receiver
from migrator.serving.grpc.server import NOT_SERVING, SERVING

grpc: Any = import_module("grpc")
MESSAGES = message_classes()
INFER = "/inference.GRPCInferenceService/ModelInfer"
CHECK = "/grpc.health.v1.Health/Check"
MIB = 2**20


class Server(NamedTuple):
    """A running server: its address over HTTP and over gRPC, its process and its log."""

    url: str
    address: str
    pid: int
    log: Path


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Server]:
    """Its end looks for tracebacks in what it wrote."""
    with running_server(grpc=True, log=str(folder / "log"), **settings) as (url, process):
        assert process.stdout is not None
        yield Server(url, process.stdout.readline().strip(), process.pid, folder / "log")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("plain")) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a token, which health checks need not have."""
    with running(tmp_path_factory.mktemp("guarded"), tokens={"images": "right"}) as server:
        yield server


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With low limits, and one of two models ready."""
    limits = {"body_bytes": MIB, "bodies_bytes": 2 * MIB, "body_s": LIMIT_S, "keep_alive_s": 1}
    with running(tmp_path_factory.mktemp("small"), limits=limits, ready=["images"]) as server:
        yield server


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


def why_refused(call: Any, message: bytes) -> str:
    """The details of a call that must fail for its argument."""
    with pytest.raises(grpc.RpcError) as caught:
        call(message, timeout=LIMIT_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    details: str = caught.value.details()
    return details


def infer_message(tensor: bytes) -> bytes:
    request = MESSAGES["ModelInferRequest"](model_name="images")
    request.inputs.add(name="input", datatype="UINT8", shape=[1, 3, SIDE, SIDE])
    request.raw_input_contents.append(tensor)
    message: bytes = request.SerializeToString()
    return message


GOOD = infer_message(bytes(3 * SIDE**2))


def test_what_is_no_message_is_refused_and_logged_in_a_few_lines(plain: Server) -> None:
    with calling(plain.address, INFER) as call:
        begun_s = time.monotonic()
        for message in (b"\xff" * 50, b"\x0a\x05a", b"\x0a\x01\xff", *[b"\xff"] * 100):
            assert code_of(call, message) == "INVALID_ARGUMENT"
        seconds = time.monotonic() - begun_s
        assert call(GOOD)
    lines = plain.log.read_text(encoding="utf-8").splitlines()
    assert "gRPC call ModelInfer refused with 400" in lines[0]
    assert len(lines) <= 5 * (seconds + 2)


@pytest.mark.parametrize(
    "message",
    [b"\x2a\x00" * 300_000, b"\x22\x00" * 300_000, b"\x2a\xc0\xcf\x24" + b"\x22\x00" * 300_000],
    ids=["inputs", "parameters", "parameters of an input"],
)
def test_many_empty_fields_are_not_decoded(tmp_path: Path, message: bytes) -> None:
    """By a server whose peak of memory no other message has raised."""
    with running(tmp_path) as server, calling(server.address, INFER) as call:
        assert call(GOOD)
        before_mib = memory_mib(server.pid, "VmHWM:")
        assert "more than 8192 fields" in why_refused(call, message)
        assert memory_mib(server.pid, "VmHWM:") - before_mib < 10


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
def test_messages_that_cost_more_to_decode_than_to_send_are_refused(
    plain: Server, kind: str, why: str
) -> None:
    with calling(plain.address, INFER) as call:
        assert why in why_refused(call, costly(kind))
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


def test_compressed_messages_are_refused(plain: Server) -> None:
    with calling(plain.address, INFER, compression=grpc.Compression.Gzip) as call:
        before_mib = memory_mib(plain.pid, "VmHWM:")
        assert code_of(call, bytes(64 * MIB)) == "UNIMPLEMENTED"
        assert memory_mib(plain.pid, "VmHWM:") - before_mib < 32
    with calling(plain.address, INFER) as call:
        assert call(GOOD)


def test_refused_messages_do_not_wait_for_their_clients(plain: Server) -> None:
    """Each takes 0.8 MiB once it is decoded."""
    message = b"\x2a\x00" * 8000
    with calling(plain.address, INFER) as call:
        before_mib = memory_mib(plain.pid, "VmHWM:")
        futures = [call.future(message, timeout=LIMIT_S) for _ in range(200)]
        assert "INVALID_ARGUMENT" in {future.code().name for future in futures}
        assert memory_mib(plain.pid, "VmHWM:") - before_mib < 64


def test_messages_are_not_received_before_their_token_is_checked(guarded: Server) -> None:
    large = infer_message(bytes(8 * MIB))
    with calling(guarded.address, INFER) as call:
        call(GOOD, metadata=(("authorization", "Bearer right"),))
        before_mib = memory_mib(guarded.pid, "VmHWM:")
        futures = [call.future(large) for _ in range(24)]
        assert {future.code().name for future in futures} == {"UNAUTHENTICATED"}
    assert memory_mib(guarded.pid, "VmHWM:") - before_mib < 40


def test_messages_that_never_end_give_way_to_others(small: Server) -> None:
    unsent: Queue[bytes | None] = Queue()
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(small.address))
        slow = [channel.stream_unary(INFER).future(iter(unsent.get, None)) for _ in range(5)]
        call = stack.enter_context(calling(small.address, INFER))
        assert call(GOOD, timeout=LIMIT_S / 2)
        for future in slow:
            future.cancel()
            unsent.put(None)


def test_open_connections_are_limited_and_do_not_end_http(tmp_path: Path) -> None:
    limits = {"header_s": 5.0}
    with running(tmp_path, files=300, limits=limits) as server, ExitStack() as stack:
        url, address, *_ = server
        for _ in range(400):
            stack.enter_context(connected(address))
        assert HTTP.get(f"{url}/v2/health/live").status_code == 200

        def answers() -> bool:
            with grpc.insecure_channel(address) as channel:
                try:
                    return bool(channel.unary_unary(INFER)(GOOD, timeout=5))
                except grpc.RpcError:
                    return False

        until(answers)  # the others are closed as they say nothing


def test_idle_connections_are_closed(small: Server) -> None:
    url, address, *_ = small
    with ExitStack() as stack:
        before = status_of(url)["files"]
        for _ in range(10):
            call = stack.enter_context(
                calling(address, INFER, options=[("grpc.use_local_subchannel_pool", 1)])
            )
            assert call(GOOD)
        assert status_of(url)["files"] >= before + 10
        until(lambda: status_of(url)["files"] <= before)
        assert call(GOOD)  # connects again


@pytest.mark.parametrize(("server", "status"), [("guarded", SERVING), ("small", NOT_SERVING)])
def test_health_as_load_balancers_ask_for_it(
    server: str, status: int, request: pytest.FixtureRequest
) -> None:
    answer = MESSAGES["HealthCheckResponse"]
    address = request.getfixturevalue(server).address
    with grpc.insecure_channel(address) as channel:
        check = channel.unary_unary(CHECK, response_deserializer=answer.FromString)
        for service in ("", "inference.GRPCInferenceService"):
            asked = MESSAGES["HealthCheckRequest"](service=service).SerializeToString()
            assert check(asked) == answer(status=status)
        unknown = MESSAGES["HealthCheckRequest"](service="nobody").SerializeToString()
        assert code_of(check, unknown) == "NOT_FOUND"
