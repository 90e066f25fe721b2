"""The API over gRPC with Triton's own client, unchanged; and Triton's routes over HTTP.

Each of a daemon, and of a gateway before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import msgspec
import numpy as np
import pytest
from support.api_server import (
    CLASSES,
    LENGTH,
    SIDE,
    VOCABULARY,
    image_body,
    running_server,
    triton_image,
)
from support.gateways import gateway
from support.http_client import HTTP

from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.serving.grpc.messages import message_classes
from migrator.serving.http.access import digest

triton: Any = import_module("tritonclient.grpc")  # it has no types
messages: Any = import_module("tritonclient.grpc.service_pb2")
stubs: Any = import_module("tritonclient.grpc.service_pb2_grpc")
configs: Any = import_module("tritonclient.grpc.model_config_pb2")
grpc: Any = import_module("grpc")


TENANTS = ("images", "texts")
ADMIN = {"authorization": "Bearer secret-of-admin"}
METADATA = tuple(ADMIN.items())


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, str]]]:
    """By kind, the addresses of a server over HTTP and gRPC."""
    settings: dict[str, Any] = {
        "tokens": {"images": "secret-of-images"},
        "admin": "secret-of-admin",
        "latency_s": 0.15,
        "limits": {"body_bytes": 4096},
    }
    folder = tmp_path_factory.mktemp("map")
    log, path = folder / "gateway.log", folder / "map.json"
    with running_server(grpc=True, **settings) as (url, process):
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        admin = digest("secret-of-admin")
        path.write_bytes(
            msgspec.json.encode(ClusterMap(1, 1, dict.fromkeys(TENANTS, url), admin=admin))
        )
        options = ("--map", str(path), "--max-body-mib", str(4096 / 2**20), "--grpc-port", "0")
        with gateway(log, *options) as own:
            said = re.search(r"gRPC at (\S+)", log.read_text(encoding="utf-8"))
            assert said
            yield {"daemon": (url, address), "gateway": (own, said[1])}


@pytest.fixture(params=["daemon", "gateway"])
def addresses(
    request: pytest.FixtureRequest, servers: dict[str, tuple[str, str]]
) -> tuple[str, str]:
    return servers[request.param]


_image = partial(triton_image, triton)


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
        assert client.is_model_ready("images", headers=ADMIN)
        assert client.get_server_metadata().name == "migrator"
        metadata = client.get_model_metadata("images", headers=ADMIN)
        assert list(metadata.inputs[0].shape) == [-1, 3, SIDE, SIDE]
        config = client.get_model_config("images", headers=ADMIN).config
        assert (config.max_batch_size, list(config.input[0].dims)) == (4, [3, SIDE, SIDE])
        assert config.input[0].data_type == configs.TYPE_UINT8
        answer = client.infer("images", [_image(2)], request_id="r9", headers=ADMIN)
        assert answer.get_response().id == "r9"
        assert answer.as_numpy("scores").shape == (2, CLASSES)
        assert answer.as_numpy("label").dtype == np.int64
        assert answer.as_numpy("class_name").tolist() == [b"cat", b"cat"]
        assert json.loads(config.parameters["class_names"].string_value) == ["cat", "dog", "2"]
        wanted = [triton.InferRequestedOutput("label")]
        only = client.infer("images", [_image()], outputs=wanted, headers=ADMIN)
        assert only.as_numpy("scores") is None
        statistics = client.get_inference_statistics("images", headers=ADMIN).model_stats[0]
        assert statistics.inference_count >= 3
        assert statistics.inference_stats.success.ns > 0
        every = client.get_inference_statistics(headers=ADMIN).model_stats
        assert {model.name for model in every} == set(TENANTS)
        assert len(client.get_model_repository_index(headers=ADMIN).models) == 2


def test_typed_contents_are_read_as_raw_ones_are(addresses: tuple[str, str]) -> None:
    with grpc.insecure_channel(addresses[1]) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        request = messages.ModelInferRequest(model_name="texts")
        tensor = request.inputs.add(name="input", datatype="INT32", shape=[1, LENGTH])
        tensor.contents.int_contents.extend(range(LENGTH))
        answer = stub.ModelInfer(request, metadata=METADATA)
        assert np.frombuffer(answer.raw_output_contents[0], "<f4").shape == (CLASSES,)
        tensor.contents.int_contents[0] = VOCABULARY
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request, metadata=METADATA)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "a token outside" in caught.value.details()
        text_request = messages.ModelInferRequest(model_name="texts")
        text_request.inputs.add(name="input", datatype="BYTES", shape=[1])
        text_request.inputs[0].contents.bytes_contents.append(b"dogs")
        assert stub.ModelInfer(text_request, metadata=METADATA).outputs[0].shape[0] == 1
        pixels = messages.ModelInferRequest(model_name="images")
        wrong = pixels.inputs.add(name="input", datatype="UINT8", shape=[1, 3, SIDE, SIDE])
        wrong.contents.uint_contents.extend([256] * 3 * SIDE**2)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(pixels, metadata=METADATA)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        pixels.raw_input_contents.extend([bytes(3 * SIDE**2)] * 2)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(pixels, metadata=METADATA)
        assert "raw_input_contents: 2 for 1 inputs" in caught.value.details()


def test_refusals_are_those_of_http(addresses: tuple[str, str]) -> None:
    with triton.InferenceServerClient(addresses[1]) as client:
        infer = partial(client.infer, headers=ADMIN)
        wrong: list[tuple[Callable[[], Any], str]] = [
            (lambda: infer("nobody", [_image()]), "NOT_FOUND"),
            (lambda: infer("no one\r\nhost: other", [_image()]), "NOT_FOUND"),
            (lambda: infer("images", [_image()], model_version="3"), "NOT_FOUND"),
            (lambda: infer("images", [_image(5)]), "INVALID_ARGUMENT"),
            (lambda: infer("images", [_image()], timeout=-1), "INVALID_ARGUMENT"),
            (lambda: client.get_model_metadata("nobody", headers=ADMIN), "NOT_FOUND"),
        ]
        for call, code in wrong:
            with pytest.raises(Exception, match=code):
                call()


def test_tokens_limits_and_deadlines_are_the_same(addresses: tuple[str, str]) -> None:
    headers = {"authorization": "Bearer secret-of-images"}
    with triton.InferenceServerClient(addresses[1]) as client:
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
    asked = HTTP.post(f"{base}/images/infer", json=image_body(), headers=ADMIN)
    assert asked.status_code == 200
    config = HTTP.get(f"{base}/images/config", headers=ADMIN).json()
    assert config["max_batch_size"] == 4
    assert config["input"] == [
        {"name": "input", "data_type": "TYPE_UINT8", "dims": [3, SIDE, SIDE]}
    ]
    stats = HTTP.get(f"{base}/images/stats", headers=ADMIN).json()["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] == stats["inference_count"] >= 1
    assert stats["execution_count"] >= 1
    assert stats["last_inference"] > 1e12
    assert len(HTTP.get(f"{base}/stats", headers=ADMIN).json()["model_stats"]) == 2
