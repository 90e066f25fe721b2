"""Uploads of labelled samples: rows with a label each, refused as a whole if one is wrong."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest
from support.api_server import CLASSES, LENGTH, SIDE, running_server

PATH = "/v2/models/images/samples"
ROW = 3 * SIDE**2


def upload(rows: int = 2, **changes: Any) -> dict[str, Any]:
    """Rows of ones, labelled 0, 1, 2, 0, ...; `changes` are of its message."""
    tensor = {"name": "input", "datatype": "UINT8", "shape": [rows, 3, SIDE, SIDE]}
    labels = [row % CLASSES for row in range(rows)]
    return {"inputs": [tensor | {"data": [1] * rows * ROW}], "labels": labels, **changes}


def stored(client: httpx.Client) -> list[dict[str, Any]]:
    stored: list[dict[str, Any]] = client.get("/admin/status").json()["stored"]
    return stored


def test_every_row_is_kept_with_its_label_and_without_an_answer(client: httpx.Client) -> None:
    answer = client.post(PATH, json=upload(300, id="many"))
    assert answer.json() == {"id": "many", "stored": 300, "repeated": 0}
    kept = [sample for sample in stored(client) if sample["id"].startswith("many/")]
    assert [sample["label"] for sample in kept] == [row % CLASSES for row in range(300)]
    assert [sample["id"].split("/")[1] for sample in kept[:2]] == ["0", "1"]
    assert {(sample["predicted"], sample["window"]) for sample in kept} == {(None, 5)}
    assert kept[0]["inputs"] == np.ones((3, SIDE, SIDE)).tolist()
    again = client.post(PATH, json=upload(300, id="many"))
    assert again.json() == {"id": "many", "stored": 0, "repeated": 300}


def test_other_samples_with_the_id_of_an_earlier_upload_are_stored(client: httpx.Client) -> None:
    first = client.post(PATH, json=upload(2, id="today", labels=[0, 1]))
    assert first.json() == {"id": "today", "stored": 2, "repeated": 0}
    other = upload(2, id="today", labels=[0, 1])
    other["inputs"][0]["data"] = [2] * 2 * ROW
    assert client.post(PATH, json=other).json() == {"id": "today", "stored": 2, "repeated": 0}


def test_another_label_of_a_stored_sample_is_refused(client: httpx.Client) -> None:
    assert client.post(PATH, json=upload(2, id="twice", labels=[0, 1])).status_code == 200
    assert client.post(PATH, json=upload(2, id="twice", labels=[0, 2])).status_code == 409
    kept = [sample["label"] for sample in stored(client) if sample["id"].startswith("twice/")]
    assert kept[:2] == [0, 1]
    assert 2 not in kept


def test_rows_stored_after_a_window_has_begun_belong_to_that_window() -> None:
    # the window that begins during the upload may already have read what it learns
    with running_server(windows_of=128) as (url, _), httpx.Client(base_url=url) as client:
        assert client.post(PATH, json=upload(300, id="long")).json()["stored"] == 300
        assert [sample["window"] for sample in stored(client)] == [5] * 128 + [6] * 128 + [7] * 44


def test_rows_may_come_as_bytes(client: httpx.Client) -> None:
    inputs = np.arange(2 * LENGTH, dtype="<i4").reshape(2, LENGTH)
    tensor: dict[str, Any] = {"name": "input", "datatype": "INT32", "shape": [2, LENGTH]}
    tensor["parameters"] = {"binary_data_size": inputs.nbytes}
    head = json.dumps({"inputs": [tensor], "labels": [2, 0]}).encode()
    headers = {
        "inference-header-content-length": str(len(head)),
        "content-type": "application/octet-stream",
    }
    answer = client.post(
        "/v2/models/texts/samples", content=head + inputs.tobytes(), headers=headers
    )
    assert answer.status_code == 200, answer.text
    assert [sample["inputs"] for sample in stored(client)[-2:]] == inputs.tolist()
    assert stored(client)[-1]["id"].startswith(f"{answer.json()['id']}/1/")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"labels": [0]}, "1 for 2 rows"),
        ({"labels": [0, 1, 2]}, "3 for 2 rows"),
        ({"labels": [0, CLASSES]}, "not a class of images; send 0 to 2"),
        ({"labels": [0, -1]}, "labels"),
        ({"labels": ["horse", 1]}, "labels: horse is not a class"),
        ({"labels": []}, "labels"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [{"name": "input", "datatype": "UINT8", "shape": [2, 3, 5, 5]}]}, "shape"),
        ({"inputs": [{"name": "input", "datatype": "FP32", "shape": [2, 3, 4, 4]}]}, "UINT8"),
    ],
)
def test_nothing_is_kept_of_an_upload_with_a_fault(
    client: httpx.Client, changes: dict[str, Any], reason: str
) -> None:
    before = len(stored(client))
    answer = client.post(PATH, json=upload(**changes))
    assert answer.status_code == 400
    assert reason in answer.json()["error"]
    assert len(stored(client)) == before
