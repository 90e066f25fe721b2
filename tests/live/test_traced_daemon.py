"""A whole daemon and a gateway with OpenTelemetry's environment variables."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from support import PYTHONPATH
from support.file_exporter import exported, installed
from support.gateways import gateway
from support.live_daemon import PATIENCE_S, samples, scenario_file, served
from support.waiting import until

from migrator.cluster.fleet.cluster_map import ClusterMap

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_daemon_exports_the_trace_of_a_request_and_its_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = tmp_path / "spans.jsonl"
    variables = {
        "OTEL_TRACES_EXPORTER": "file",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_RESOURCE_ATTRIBUTES": "room=7",
        "SPANS_FILE": str(spans),
        "PYTHONPATH": os.pathsep.join((PYTHONPATH, installed(tmp_path / "packages"))),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)  # for the gateway
    path = scenario_file(tmp_path, "photos")
    with served(path, tmp_path / "state", **variables) as daemon:
        cluster_map = ClusterMap(1, 1, {"photos": daemon.url})
        (tmp_path / "map.json").write_bytes(msgspec.json.encode(cluster_map))
        with gateway(tmp_path / "gateway.log", "--map", str(tmp_path / "map.json")) as url:
            picture = samples(0, 1)[0][0]
            tensor = {"name": "input", "datatype": "UINT8", "shape": [1, *picture.shape]}
            headers = {
                "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
                "timeout-ms": f"{1e3 * PATIENCE_S:g}",
            }
            answer = daemon.client.post(
                f"{url}/v2/models/photos/infer",
                json={"inputs": [{**tensor, "data": picture.reshape(-1).tolist()}]},
                headers=headers,
            )
            assert answer.status_code == 200, answer.text
        until(lambda: "plan" in {span["name"] for span in exported(spans)}, daemon.said)
        assert daemon.stop() == 0, daemon.said()
    written = exported(spans)
    of_request = [span for span in written if span["context"]["trace_id"] == f"0x{TRACE}"]
    parents = {span["context"]["span_id"]: span["name"] for span in of_request}
    assert {(span["name"], parents.get(span["parent_id"])) for span in of_request} == {
        ("gateway", None),
        ("infer", "gateway"),
        ("queue", "infer"),
        ("batch", "infer"),
        ("worker", "batch"),
    }
    services = {span["name"]: span["resource"]["attributes"] for span in written}
    assert services["gateway"]["service.name"] == "migrator-gateway"
    assert services["infer"]["service.name"] == "migrator"
    assert services["infer"]["room"] == "7"
    (worker,) = [span for span in of_request if span["name"] == "worker"]
    assert worker["events"][0]["name"] == "begins"
    plan = next(span for span in written if span["name"] == "plan")
    assert plan["attributes"]["migrator.planned_by"] == "static-4-3"
    assert plan["attributes"]["migrator.because"] == "the window begins"
    assert plan["parent_id"] is None
