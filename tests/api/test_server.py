"""`migrator.serve`: a real daemon for the length of a `with` block."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PYTHONPATH
from support.certificates import authority
from support.live_daemon import samples, scenario_file

import migrator

triton: Any = import_module("tritonclient.grpc")  # it has no types


def test_it_serves_inside_the_block_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0.1")
    ca = authority(tmp_path / "ca")
    ca.issue(tmp_path / "pair")
    path = scenario_file(tmp_path, "photos")
    tls = "{port: 0, tls: {certificate: pair/tls.crt, key: pair/tls.key}}"
    path.write_text(path.read_text("utf-8").replace("{port: 0}", tls), encoding="utf-8")
    pictures, labels = samples(0, 1)
    with migrator.serve(path, state=tmp_path / "state", grpc_port=0, ca=ca.ca) as server:
        assert server.url.startswith("https://127.0.0.1:")
        answer = server.infer("photos", pictures[:1], request_id="r1")
        assert answer["id"] == "r1"
        server.feedback("photos", "r1", int(labels[0]))
        assert set(server.status()["tenants"]) == {"photos"}
        assert "serving at" in server.log
        secure = {"ssl": True, "root_certificates": str(ca.ca)}
        with triton.InferenceServerClient(server.grpc_address, **secure) as client:
            assert client.get_model_config("photos").config.max_batch_size == 4
        with pytest.raises(migrator.MigratorError, match="nobody"):
            server.call("GET", "/v2/models/nobody")
    assert repr(server) == "<Server, not running>"


def test_texts_and_class_names_are_sent_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0.1")
    rows = [
        {"text": f"{word} number {row}", "label": word}
        for word in ("goal", "vote")
        for row in range(10)
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "train.jsonl").write_text(lines, encoding="utf-8")
    with migrator.serve(model="small-text", data=texts, state=tmp_path / "state") as server:
        (tenant,) = server.status()["tenants"]
        metadata = server.call("GET", f"/v2/models/{tenant}")
        assert metadata["parameters"]["class_names"] == ["goal", "vote"]
        answer = server.infer(tenant, ["the goal", "a vote"], request_id="r1")
        _, labels, names = (output["data"] for output in answer["outputs"])
        assert names == [("goal", "vote")[label] for label in labels]
        assert len(server.infer(tenant, "one text")["outputs"][1]["data"]) == 1
        assert server.infer(tenant, np.array(["one", "two"]))["id"]
        assert server.feedback(tenant, "r1", "vote")["stored"]
        with pytest.raises(migrator.MigratorError, match="game is not a class of"):
            server.feedback(tenant, "r1", "game")


def test_what_the_daemon_refuses_is_raised(tmp_path: Path) -> None:
    with (
        pytest.raises(migrator.InputError, match="--data: there is no folder"),
        migrator.serve(model="small-cnn", data=tmp_path / "missing"),
    ):
        raise AssertionError("it must not serve")
