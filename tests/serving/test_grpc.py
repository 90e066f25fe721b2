"""The API over gRPC with Triton's own client, unchanged; and Triton's routes over HTTP.

Each of a daemon, and of a gateway before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from support.api_server import CLASSES, LENGTH, SIDE, VOCABULARY, image_body, running_server
from support.gateways import gateway

from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.serving.grpc.messages import message_classes
from migrator.serving.http.access import digest

triton: Any = import_module("tritonclient.grpc")  # it has no types
messages: Any = import_module("tritonclient.grpc.service_pb2")
stubs: Any = import_module("tritonclient.grpc.service_pb2_grpc")
configs: Any = import_module("tritonclient.grpc.model_config_pb2")
grpc: Any = import_module("grpc")


KINDS = ("daemon", "gateway")


@contextmanager
def running(kind: str, folder: Path, **settings: Any) -> Iterator[tuple[str, str]]:
    """A server of that kind: its addresses over HTTP and gRPC."""
    with running_server(grpc=True, **settings) as (url, process):
        assert process.stdout is not None
        if kind == "daemon":
            yield url, process.stdout.readline().strip()
            return
        cluster_map = ClusterMap(
            1, 1, {"images": url, "texts": url}, admin=digest("secret-of-admin")
        )
        (folder / "map.json").write_bytes(msgspec.json.encode(cluster_map))
        mib = settings.get("limits", {}).get("body_bytes", 2**24) / 2**20
        options = ("--map", str(folder / "map.json"), "--max-body-mib", str(mib))
        log = folder / "gateway.log"
        with gateway(log, *options, "--grpc-port", "0") as own:
            said = re.search(r"gRPC at (\S+)", log.read_text(encoding="utf-8"))
            assert said
            yield own, said[1]


@pytest.fixture(scope="module", params=KINDS)
def addresses(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    with running(request.param, tmp_path_factory.mktemp("map")) as server:
        yield server


def _image(rows: int = 1, value: int = 0) -> Any:
    tensor = triton.InferInput("input", [rows, 3, SIDE, SIDE], "UINT8")
    tensor.set_data_from_numpy(np.full((rows, 3, SIDE, SIDE), value, np.uint8))
    return tensor


def test_fields_have_the_numbers_of_the_protocol() -> None:
    for name, own in message_classes().items():
        theirs = getattr(messages, name, None) or getattr(configs, name, None)
        if theirs is None:  # a nested one of theirs: its place in the other message is compared
            continue
        for field in own.DESCRIPTOR.fields:
            same = theirs.DESCRIPTOR.fields_by_name[field.name]
            assert (field.number, field.type) == (same.number, same.type), (name, field.name)


def test_triton_s_client_works_unchanged(addresses: tuple[str, str]) -> None:
    with triton.InferenceServerClient(addresses[1]) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("images")
        assert client.get_server_metadata().name == "migrator"
        metadata = client.get_model_metadata("images")
        assert list(metadata.inputs[0].shape) == [-1, 3, SIDE, SIDE]
        config = client.get_model_config("images").config
        assert (config.max_batch_size, list(config.input[0].dims)) == (4, [3, SIDE, SIDE])
        assert config.input[0].data_type == configs.TYPE_UINT8
        answer = client.infer("images", [_image(2)], request_id="r9")
        assert answer.get_response().id == "r9"
        assert answer.as_numpy("scores").shape == (2, CLASSES)
        assert answer.as_numpy("label").dtype == np.int64
        assert answer.as_numpy("class_name").tolist() == [b"cat", b"cat"]
        assert json.loads(config.parameters["class_names"].string_value) == ["cat", "dog", "2"]
        wanted = [triton.InferRequestedOutput("label")]
        assert client.infer("images", [_image()], outputs=wanted).as_numpy("scores") is None
        statistics = client.get_inference_statistics("images").model_stats[0]
        assert statistics.inference_count >= 3
        assert statistics.inference_stats.success.ns > 0
        assert {stat.name for stat in client.get_inference_statistics().model_stats} == {
            "images",
            "texts",
        }
        assert len(client.get_model_repository_index().models) == 2


def test_typed_contents_are_read_as_raw_ones_are(addresses: tuple[str, str]) -> None:
    with grpc.insecure_channel(addresses[1]) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        request = messages.ModelInferRequest(model_name="texts")
        tensor = request.inputs.add(name="input", datatype="INT32", shape=[1, LENGTH])
        tensor.contents.int_contents.extend(range(LENGTH))
        answer = stub.ModelInfer(request)
        assert np.frombuffer(answer.raw_output_contents[0], "<f4").shape == (CLASSES,)
        tensor.contents.int_contents[0] = VOCABULARY
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "a token outside" in caught.value.details()
        text_request = messages.ModelInferRequest(model_name="texts")
        text_request.inputs.add(name="input", datatype="BYTES", shape=[1])
        text_request.inputs[0].contents.bytes_contents.append(b"dogs")
        assert stub.ModelInfer(text_request).outputs[0].shape[0] == 1
        pixels = messages.ModelInferRequest(model_name="images")
        wrong = pixels.inputs.add(name="input", datatype="UINT8", shape=[1, 3, SIDE, SIDE])
        wrong.contents.uint_contents.extend([256] * 3 * SIDE**2)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(pixels)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_raw_contents_must_be_one_for_each_input(addresses: tuple[str, str]) -> None:
    with grpc.insecure_channel(addresses[1]) as channel:
        request = messages.ModelInferRequest(model_name="images")
        request.inputs.add(name="input", datatype="UINT8", shape=[1, 3, SIDE, SIDE])
        request.raw_input_contents.extend([bytes(3 * SIDE**2)] * 2)
        with pytest.raises(grpc.RpcError) as caught:
            stubs.GRPCInferenceServiceStub(channel).ModelInfer(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "raw_input_contents: 2 for 1 inputs" in caught.value.details()


def test_refusals_are_those_of_http(addresses: tuple[str, str]) -> None:
    with triton.InferenceServerClient(addresses[1]) as client:
        wrong: list[tuple[Callable[[], Any], str]] = [
            (lambda: client.infer("nobody", [_image()]), "NOT_FOUND"),
            (lambda: client.infer("no one\r\nhost: other", [_image()]), "NOT_FOUND"),
            (lambda: client.infer("images", [_image()], model_version="3"), "NOT_FOUND"),
            (lambda: client.infer("images", [_image(5)]), "INVALID_ARGUMENT"),
            (lambda: client.infer("images", [_image()], timeout=-1), "INVALID_ARGUMENT"),
            (lambda: client.get_model_metadata("nobody"), "NOT_FOUND"),
        ]
        for call, code in wrong:
            with pytest.raises(Exception, match=code):
                call()


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_limits_and_deadlines_are_the_same(kind: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "tokens": {"images": "secret-of-images"},
        "admin": "secret-of-admin",
        "latency_s": 0.3,
        "limits": {"body_bytes": 4096},
    }
    with running(kind, tmp_path, **settings) as (_, address):
        headers = {"authorization": "Bearer secret-of-images"}
        with triton.InferenceServerClient(address) as client:
            with pytest.raises(Exception, match="UNAUTHENTICATED"):
                client.infer("images", [_image()])
            with pytest.raises(Exception, match="PERMISSION_DENIED"):
                client.infer("texts", [_image()], headers=headers)
            assert client.infer("images", [_image()], headers=headers).as_numpy("label").size
            with pytest.raises(Exception, match="DEADLINE_EXCEEDED"):  # 50 ms, as Triton counts
                client.infer("images", [_image()], headers=headers, timeout=50_000)
            with pytest.raises(Exception, match="DEADLINE_EXCEEDED"):  # 100 ms, of the call
                client.infer("images", [_image()], headers=headers, client_timeout=0.1)
            longer = {"headers": headers, "client_timeout": 3600}  # the objective counts
            assert client.infer("images", [_image()], **longer).as_numpy("label").size
            large = triton.InferInput("input", [4, 3, 200, 200], "UINT8")
            large.set_data_from_numpy(np.zeros((4, 3, 200, 200), np.uint8))
            with pytest.raises(Exception, match="RESOURCE_EXHAUSTED"):
                client.infer("images", [large], headers=headers)


def test_triton_s_routes_over_http(addresses: tuple[str, str]) -> None:
    base = f"{addresses[0]}/v2/models"
    assert httpx.post(f"{base}/images/infer", json=image_body()).status_code == 200
    config = httpx.get(f"{base}/images/config").json()
    assert config["max_batch_size"] == 4
    assert config["input"] == [
        {"name": "input", "data_type": "TYPE_UINT8", "dims": [3, SIDE, SIDE]}
    ]
    stats = httpx.get(f"{base}/images/stats").json()["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] == stats["inference_count"] >= 1
    assert stats["execution_count"] >= 1
    assert stats["last_inference"] > 1e12
    assert len(httpx.get(f"{base}/stats").json()["model_stats"]) == 2
