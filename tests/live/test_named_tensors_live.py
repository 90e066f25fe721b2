"""A model with named tensors, the example, in a daemon: served, labelled and retrained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from support import PYTHONPATH
from support.live_daemon import Served, served

http: Any = import_module("tritonclient.http")  # they have no types
grpc: Any = import_module("tritonclient.grpc")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAME = "shop"
TARGETS = np.eye(4, 8, dtype=np.float32)
TIMEOUT_US = 30_000_000


def goods(count: int, seed: int) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
    """Pictures of one of four colours, their prices, and the embedding that each should have."""
    draw = np.random.default_rng(seed)
    kinds = np.arange(count) % 4
    colours = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)[kinds]
    pictures = np.broadcast_to(colours[:, :, None, None], (count, 3, 16, 16)).copy()
    pictures[:, :, 0, 0] = draw.integers(0, 256, (count, 3))
    prices = draw.random(count).astype(np.float32)
    return {"picture": pictures, "price": prices}, TARGETS[kinds]


def rows_of(columns: dict[str, NDArray[Any]], first: int, count: int = 1) -> Any:
    return {name: column[first : first + count] for name, column in columns.items()}


def tensors(library: Any, columns: dict[str, NDArray[Any]], **options: Any) -> list[Any]:
    """The arrays as the client library sends them."""
    made = []
    for name, column in columns.items():
        datatype = "UINT8" if column.dtype == np.uint8 else "FP32"
        tensor = library.InferInput(name, list(column.shape), datatype)
        tensor.set_data_from_numpy(column, **options)
        made.append(tensor)
    return made


def as_json(columns: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "datatype": "UINT8" if column.dtype == np.uint8 else "FP32",
            "shape": list(column.shape),
            "data": column.tolist(),
        }
        for name, column in columns.items()
    ]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """The example in windows of three seconds, and its address for gRPC."""
    folder = tmp_path_factory.mktemp("shop")
    text = (EXAMPLES / "embedder.yaml").read_text(encoding="utf-8")
    text = text.replace("window_s: 20", "window_s: 3").replace("port: 8600", "port: 0")
    text = text.replace("policy: migrator", "policy: static-4-3")
    text = text.replace("forecaster: auto", "forecaster: last-mean")
    path = folder / "embedder.yaml"
    path.write_text(text, encoding="utf-8")
    variables = {"PYTHONPATH": f"{EXAMPLES}:{PYTHONPATH}"}
    with served(path, folder / "state", "--grpc-port", "0", **variables) as daemon:
        said = re.search(r'gRPC[^"\n]* at ([^\s"]+)', daemon.log.read_text(encoding="utf-8"))
        assert said, daemon.said()
        yield daemon, said[1]
        assert daemon.stop() == 0, daemon.said()


def test_it_is_served_labelled_and_retrained_over_http_and_grpc(shop: tuple[Served, str]) -> None:
    daemon, grpc_address = shop
    columns, targets = goods(160, 0)
    base = f"{daemon.url}/v2/models/{NAME}"
    with (
        http.InferenceServerClient(daemon.url.removeprefix("http://")) as over_http,
        grpc.InferenceServerClient(grpc_address) as over_grpc,
    ):
        metadata = over_http.get_model_metadata(NAME)
        assert metadata["inputs"] == [
            {"name": "picture", "datatype": "UINT8", "shape": [-1, 3, 16, 16]},
            {"name": "price", "datatype": "FP32", "shape": [-1]},
        ]
        assert metadata["parameters"]["labels"] == [
            {"name": "target", "datatype": "FP32", "shape": [-1, 8]}
        ]
        config = over_grpc.get_model_config(NAME).config
        assert [tensor.name for tensor in config.output] == ["embedding", "length"]

        def ask(library: Any, client: Any, first: int, **options: Any) -> NDArray[np.float32]:
            answer = client.infer(
                NAME,
                tensors(library, rows_of(columns, first), **options),
                request_id=f"asked-{first}",
                timeout=TIMEOUT_US,
            )
            embedding: NDArray[np.float32] = answer.as_numpy("embedding")
            assert embedding.shape == (1, 8)
            assert answer.as_numpy("length") == pytest.approx(np.linalg.norm(embedding), rel=1e-4)
            return embedding

        for first in range(0, 20, 2):
            ask(http, over_http, first, binary_data=first % 4 == 0)
            ask(grpc, over_grpc, first + 1)
        # the labels of half of them come over each
        for first in range(0, 20, 2):
            label = {"target": targets[first : first + 1]}
            body = {"id": f"asked-{first}", "inputs": as_json(label)}
            sent = daemon.client.post(f"{base}/feedback", json=body)
            assert sent.json() == {"id": f"asked-{first}", "stored": True}, sent.text
            label = {"target": targets[first + 1 : first + 2]}
            stored = over_grpc.infer(
                NAME,
                tensors(grpc, label),
                request_id=f"asked-{first + 1}",
                parameters={"operation": "feedback"},
            )
            assert stored.get_response().parameters["stored"].bool_param
        metrics = daemon.client.get(f"{daemon.url}/metrics").text
        assert judged(metrics) == 20

        def upload(seed: int) -> None:
            some, wanted = goods(80, seed)
            body = {"id": f"goods-{seed}", "inputs": as_json(some | {"target": wanted})}
            uploaded = daemon.client.post(f"{base}/samples", json=body)
            assert uploaded.json() == {"id": body["id"], "stored": 80, "repeated": 0}

        labelled = rows_of(columns, 90, 70) | {"target": targets[90:]}
        for stored, repeated in ((70, 0), (0, 70)):
            answer = over_grpc.infer(
                NAME,
                tensors(grpc, labelled),
                request_id="more-goods",
                parameters={"operation": "samples"},
            ).get_response()
            assert answer.parameters["stored"].int64_param == stored
            assert answer.parameters["repeated"].int64_param == repeated

        uploaded: set[int] = set()

        def has_learned(now: dict[str, Any]) -> bool:
            """New samples come in every window."""
            if now["window"] not in uploaded:
                uploaded.add(now["window"])
                upload(100 + now["window"])
            tenant = now["tenants"][NAME]
            return bool(tenant["version"] >= 1 and tenant["accuracy"] > 0.9)

        daemon.wait_for(has_learned, "a retrained model serves")
        columns, targets = goods(20, 1)
        near = 0
        for first in range(20):
            library, client = (grpc, over_grpc) if first % 2 else (http, over_http)
            embedding = ask(library, client, first)[0]
            near += embedding @ targets[first] > 0.9 * np.linalg.norm(embedding)
        assert near >= 18


def judged(metrics: str) -> int:
    """How many answers of the tenant were compared with their labels."""
    counts = re.findall(rf'^migrator_judged_total{{tenant="{NAME}"}} (\d+)', metrics, re.MULTILINE)
    return sum(map(int, counts))


def test_missing_doubled_and_uneven_tensors_are_refused(shop: tuple[Served, str]) -> None:
    columns, _ = goods(2, 0)
    picture, price = as_json(columns)
    assert_refused(shop[0], [picture], "picture, price; not picture")
    assert_refused(shop[0], [picture, price, price], "not picture, price, price")
    assert_refused(shop[0], [picture, price | {"shape": [1], "data": [1]}], r"of \[1, 2\] rows")
    assert_refused(shop[0], [picture] * 65, "length <= 64")
    for changes, reason in (
        ({"datatype": "FP32"}, "picture of shop is UINT8; not FP32"),
        ({"shape": [2, 2**31, 2**31, 2**31]}, r"takes \[rows, 3, 16, 16\]"),
        ({"shape": [2**31, 3, 16, 16]}, "rows where shop takes 1 to 4"),
        ({"data": [256] * 1536}, "whole numbers from 0 to 255"),
    ):
        assert_refused(shop[0], [picture | changes, price], reason)


def test_wrong_labels_are_refused_and_the_right_one_is_kept(shop: tuple[Served, str]) -> None:
    daemon, _ = shop
    columns, targets = goods(1, 2)
    url = f"{daemon.url}/v2/models/{NAME}/feedback"
    inputs, label = as_json(columns), as_json({"target": targets})[0]

    def send(**body: Any) -> httpx.Response:
        return daemon.client.post(url, json={"id": "labelled", **body})

    for body, reason in (
        ({"label": 3, "inputs": inputs}, "send the tensors target among the inputs alone"),
        ({"inputs": inputs}, "takes one tensor each named target"),
        ({"inputs": [*inputs, label | {"shape": [1, 4]}]}, r"takes \[rows, 8\]"),
        ({"inputs": [*inputs, label | {"data": [1e300] * 8}]}, "target contains NaN or infinity"),
        ({"inputs": [inputs[0], label]}, "picture, price; not picture"),
    ):
        refused = send(**body)
        assert refused.status_code == 400, refused.text
        assert re.search(reason, refused.json()["error"]), refused.text
    assert send(inputs=[*inputs, label]).json()["stored"]
    assert send(inputs=[*inputs, label]).status_code == 200
    other = send(inputs=[*inputs, label | {"data": [0.5] * 8}])
    assert other.status_code == 409, other.text


def assert_refused(daemon: Served, inputs: list[dict[str, Any]], reason: str) -> None:
    url = f"{daemon.url}/v2/models/{NAME}/infer"
    refused = daemon.client.post(url, json={"inputs": inputs})
    assert refused.status_code == 400, refused.text
    assert re.search(reason, refused.json()["error"]), refused.text
