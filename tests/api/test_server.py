"""`migrator.serve`: a real daemon for the length of a `with` block."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support import PYTHONPATH
from support.live_daemon import samples, scenario_file

import migrator

triton: Any = import_module("tritonclient.grpc")  # it has no types


def test_it_serves_inside_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0.1")
    path = scenario_file(tmp_path, "photos")
    pictures, labels = samples(0, 1)
    with migrator.serve(path, state=tmp_path / "state", grpc_port=0) as server:
        assert server.url.startswith("http://127.0.0.1:")
        answer = server.infer("photos", pictures[:1], request_id="r1")
        assert answer["id"] == "r1"
        server.feedback("photos", "r1", int(labels[0]))
        assert set(server.status()["tenants"]) == {"photos"}
        assert "serving at" in server.log
        with triton.InferenceServerClient(server.grpc_address) as client:
            assert client.get_model_config("photos").config.max_batch_size == 4
        with pytest.raises(migrator.MigratorError, match="nobody"):
            server.call("GET", "/v2/models/nobody")
    assert repr(server) == "<Server, not running>"


def test_what_the_daemon_refuses_is_raised(tmp_path: Path) -> None:
    with (
        pytest.raises(migrator.InputError, match=r"missing\.yaml"),
        migrator.serve(tmp_path / "missing.yaml"),
    ):
        raise AssertionError("it must not serve")
    with (
        pytest.raises(migrator.InputError, match="--data: there is no folder"),
        migrator.serve(model="small-cnn", data=tmp_path / "missing"),
    ):
        raise AssertionError("it must not serve")
