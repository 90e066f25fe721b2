"""The API over a real port, asked by the real Triton client and by plain HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.api_server import CLASSES, SIDE, image_body, triton_image
from support.stand_in_worker import POISON

from migrator.serving.http.app import OPERATIONS
from migrator.serving.http.protocol import InferAnswer

triton: Any = import_module("tritonclient.http")  # it has no types
INFER, FEEDBACK = "/v2/models/images/infer", "/v2/models/images/feedback"
IMAGE = np.arange(3 * SIDE * SIDE, dtype=np.uint8).reshape(1, 3, SIDE, SIDE)


@pytest.fixture(scope="module")
def server(client: httpx.Client) -> Iterator[Any]:
    server = triton.InferenceServerClient(client.base_url.netloc.decode())
    yield server
    server.close()


def test_the_triton_client_finds_its_way(server: Any) -> None:
    assert server.is_server_live()
    assert server.is_server_ready()
    assert server.is_model_ready("texts")
    assert server.is_model_ready("texts", "7")
    assert server.get_server_metadata()["name"] == "migrator"
    metadata = server.get_model_metadata("images")
    assert metadata["versions"] == ["7"]
    assert metadata["inputs"] == [
        {"name": "input", "datatype": "UINT8", "shape": [-1, 3, SIDE, SIDE]}
    ]
    assert metadata["outputs"] == [
        {"name": "scores", "datatype": "FP32", "shape": [-1, CLASSES]},
        {"name": "label", "datatype": "INT64", "shape": [-1]},
        {"name": "class_name", "datatype": "BYTES", "shape": [-1]},
    ]
    assert metadata["parameters"] == {"class_names": ["cat", "dog", "2"]}
    index = server.get_model_repository_index()
    assert [(model["name"], model["state"]) for model in index] == [
        ("images", "READY"),
        ("texts", "READY"),
    ]


@pytest.mark.parametrize("sent_binary", [True, False])
@pytest.mark.parametrize("answered_binary", [True, False, None])
def test_the_triton_client_gets_its_answers(
    server: Any, sent_binary: bool, answered_binary: bool | None
) -> None:
    wanted = None
    if answered_binary is not None:
        wanted = [
            triton.InferRequestedOutput(name, binary_data=answered_binary)
            for name in ("class_name", "label", "scores")
        ]
    inputs = [triton_image(triton, 2, 5, binary_data=sent_binary)]
    answer = server.infer("images", inputs, outputs=wanted, request_id="mine", timeout=4_000_000)
    assert answer.get_response()["model_version"] == "7"
    assert answer.get_response()["id"] == "mine"
    assert answer.as_numpy("label").tolist() == [2, 2]
    assert answer.as_numpy("label").dtype == np.int64
    assert [str(name, "utf-8") for name in _encoded(answer.as_numpy("class_name"))] == ["2", "2"]
    assert answer.as_numpy("scores").tolist() == [[0.0, 0.0, 1.0]] * 2
    assert answer.as_numpy("scores").dtype == np.float32


def _encoded(names: Any) -> list[bytes]:
    """Triton's client gives texts from JSON as str, from binary data as bytes."""
    return [name.encode() if isinstance(name, str) else name for name in names]


def test_a_label_is_the_name_or_the_number_of_a_class(client: httpx.Client) -> None:
    for label in ("dog", 1, "2"):
        body = image_body(data=IMAGE.tolist())
        answer = client.post(INFER, json=body).json()
        assert [output["data"] for output in answer["outputs"][1:]] == [[0], ["cat"]]
        assert client.post(FEEDBACK, json={"id": answer["id"], "label": label}).status_code == 200
    inputs = image_body(data=IMAGE.tolist())["inputs"]
    done = client.post("/v2/models/images/samples", json={"inputs": inputs, "labels": ["dog"]})
    assert done.status_code == 200
    stored = client.get("/admin/status").json()["stored"]
    assert [label["label"] for label in stored[-4:]] == [1, 1, 2, 1]
    refused = client.post(FEEDBACK, json={"id": answer["id"], "label": "horse"})
    assert refused.status_code == 400
    assert "horse is not a class of images; send 0 to 2, or a name" in refused.json()["error"]


def test_plain_json_is_enough(client: httpx.Client) -> None:
    flat = image_body(data=IMAGE.ravel().tolist())
    answer = client.post(INFER, json=flat).json()
    assert answer["outputs"][1]["data"] == [0]
    assert msgspec.convert(answer, InferAnswer).id
    nested = client.post(INFER, json=image_body(data=IMAGE.tolist())).json()
    assert nested["outputs"] == answer["outputs"]
    assert nested["id"] != answer["id"]
    for data in ([1] * 12, [[1] * 6] * 2):
        tokens = image_body(datatype="INT32", shape=[2, 6], data=data)
        assert client.post("/v2/models/texts/infer", json=tokens).status_code == 200


def _text_body(data: Any, shape: list[int], name: str = "texts") -> tuple[str, dict[str, Any]]:
    tensor = {"name": "input", "datatype": "BYTES", "shape": shape, "data": data}
    return f"/v2/models/{name}/infer", {"inputs": [tensor]}


WRONG_IMAGES: list[tuple[dict[str, Any], str]] = [
    ({"name": "pixels"}, "one tensor named input"),
    ({"datatype": "FP32"}, "of UINT8"),
    ({"shape": [1, 3, SIDE]}, "takes [rows, 3"),
    ({"shape": [0, 3, SIDE, SIDE], "data": []}, "takes [rows, 3"),
    ({"shape": [9, 3, SIDE, SIDE], "data": [0] * 9 * 3 * SIDE**2}, "1 to 4 at a time"),
    ({"shape": [-1, 3, SIDE, SIDE]}, "shape"),
    ({"data": [1, 2]}, "whole numbers"),
    ({"data": [300] * 3 * SIDE**2}, "0 to 255"),
    ({"data": [-1] * 3 * SIDE**2}, "0 to 255"),
    ({"data": [0.5] * 3 * SIDE**2}, "whole numbers"),
    ({"data": [[1], [2, 3]]}, "nested as the shape"),
    ({"data": None}, "whole numbers"),
    ({"parameters": {"binary_data_size": 4}}, "0 bytes of binary data"),
    ({"parameters": {"shared_memory_region": "a"}}, "shared memory"),
    ({"parameters": 3}, "Expected object"),
]
WRONG_OUTPUTS = [{"name": "logits"}, {"name": "label", "parameters": {"classification": 1}}]
WRONG_TEXTS = [
    (_text_body(["a"], [2]), "1 texts for 2 rows; send one per row"),
    (_text_body(["a"], [1, 1, 1]), "texts of texts have [rows]"),
    (_text_body([1], [1]), "no texts; send them as data"),
    (_text_body([None], [1]), "inputs: data: "),
    (_text_body(["a"], [1], "images"), "takes one tensor named input of UINT8; not"),
]
WRONG_LABELS: list[tuple[dict[str, Any], int]] = [
    ({"id": "long ago", "label": 0}, 404),
    ({"label": 0}, 400),
    ({"id": "x"}, 400),
    ({"id": "x", "label": CLASSES}, 400),
    ({"id": "x", "label": -1}, 400),
    ({"id": "x", "label": "horse"}, 400),
]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        *((INFER, image_body(**changes), 400, words) for changes, words in WRONG_IMAGES),
        *((INFER, image_body() | {"outputs": [wanted]}, 400, "") for wanted in WRONG_OUTPUTS),
        *((path, body, 400, words) for (path, body), words in WRONG_TEXTS),
        *((FEEDBACK, body, status, "") for body, status in WRONG_LABELS),
    ],
)
def test_what_a_model_cannot_take_is_refused_with_the_reason(
    client: httpx.Client, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]
    assert words in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"", {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"inputs":[]}', {}, 400),
        (b"{}", {"inference-header-content-length": "-1"}, 400),
        (b"{}", {"content-type": "text/html"}, 415),
        (b"{}", {"content-encoding": "gzip"}, 415),
    ],
)
def test_what_is_no_message_is_refused(
    client: httpx.Client, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = client.post(INFER, content=body, headers=headers)
    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/v2/", 404),
        ("GET", "/v2/models/missing", 404),
        ("GET", "/v2/models/images/versions/8", 404),
        ("POST", "/v2/models/missing/infer", 404),
        ("POST", "/v2/models/images/versions/8/infer", 404),
        ("GET", INFER, 405),
        ("DELETE", "/v2", 405),
    ],
)
def test_what_is_not_there_is_said(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_a_deadline_may_be_a_header(client: httpx.Client) -> None:
    for timeout_ms, status in (("1500", 200), ("nan", 400), ("soon", 400), ("0.0001", 504)):
        headers = {"timeout-ms": timeout_ms}
        answer = client.post(INFER, json=image_body(), headers=headers)
        # the shortest is over before anybody could have answered, or answered late
        assert answer.status_code == status or answer.json()["parameters"]["late"], timeout_ms


@pytest.mark.parametrize(("data", "shape"), [(["a", "dogs"], [2]), ([["a"], ["dogs"]], [2, 1])])
def test_texts_are_tokenised_by_the_server(
    client: httpx.Client, data: Any, shape: list[int]
) -> None:
    path, body = _text_body(data, shape)
    outputs = {
        output["name"]: output["data"] for output in client.post(path, json=body).json()["outputs"]
    }
    assert outputs["label"] == [1 % CLASSES, 4 % CLASSES]  # tokens are lengths here


def test_other_requests_do_not_wait_for_long_texts(client: httpx.Client, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path, body = _text_body([f"{pipe} " + "long " * 10_000], [1])
    with ThreadPoolExecutor(1) as threads:
        long = threads.submit(client.post, path, json=body)
        with pipe.open("wb"):  # when the server has begun to encode
            assert client.post(INFER, json=image_body()).status_code == 200
            assert not long.done()
        assert long.result().status_code == 200


def test_texts_with_wrong_lengths_are_refused(client: httpx.Client) -> None:
    tensor = {"name": "input", "datatype": "BYTES", "shape": [1]}
    for tail in (b"\x09\0\0\0a", b"\x01\0", b"\x01\0\0\0\xff"):
        head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": len(tail)}}]})
        reply = client.post(
            "/v2/models/texts/infer",
            content=head.encode() + tail,
            headers={"inference-header-content-length": str(len(head))},
        )
        assert reply.status_code == 400
        assert "not texts in UTF-8 after their lengths" in reply.json()["error"]


def test_a_model_that_fails_is_the_servers_fault(client: httpx.Client) -> None:
    body = image_body(POISON)
    answer = client.post(INFER, json=body)
    assert answer.status_code == 500
    assert "ValueError" in answer.json()["error"]


def test_an_answered_request_can_be_labelled_by_its_id(client: httpx.Client) -> None:
    body = image_body(4) | {"id": "labelled"}
    assert client.post(INFER, json=body).status_code == 200
    sent = {"id": "labelled", "label": 2}
    answer = client.post(FEEDBACK, json=sent)
    assert answer.json() == {"id": "labelled", "stored": True}
    stored = client.get("/admin/status").json()["stored"][-1]
    assert stored == {
        "tenant": "images",
        "id": "labelled",
        "label": 2,
        "window": 5,
        "predicted": 1,
        "inputs": np.full((3, SIDE, SIDE), 4).tolist(),
    }


def test_a_label_may_bring_its_inputs(client: httpx.Client) -> None:
    answer = client.post(FEEDBACK, json=image_body() | {"label": 1})
    assert answer.status_code == 200
    stored = client.get("/admin/status").json()["stored"][-1]
    assert (stored["id"], stored["predicted"]) == (answer.json()["id"], None)
    assert stored["inputs"] == np.zeros((3, SIDE, SIDE)).tolist()


def test_a_row_of_several_can_be_labelled(client: httpx.Client, server: Any) -> None:
    server.infer("images", [triton_image(triton, 2, 5)], request_id="two")
    for row, status in ((1, 200), (2, 400)):
        sent = {"id": "two", "label": 0, "row": row}
        assert client.post(FEEDBACK, json=sent).status_code == status
    assert client.get("/admin/status").json()["stored"][-1]["id"] == "two/1"


def test_metrics_tell_what_was_served(client: httpx.Client) -> None:
    client.post(INFER, json=image_body())
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    in_time = samples["migrator_requests_total", ("outcome", "in_time"), ("tenant", "images")]
    assert in_time >= 1
    assert samples["migrator_received_total", ("tenant", "images")] >= in_time
    assert samples["migrator_latency_seconds_count", ("tenant", "images")] >= in_time
    assert samples["migrator_queue_length", ("tenant", "images")] == 0
    assert samples["migrator_workers", ("state", "idle"), ("tenant", "texts")] == 1


def test_the_description_has_every_path(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    assert set(described["paths"]) == {path for item in OPERATIONS for path in item.paths}
