"""A whole daemon with OpenTelemetry's environment variables."""

from __future__ import annotations

import os
from pathlib import Path

from support import PYTHONPATH
from support.file_exporter import exported, installed
from support.live_daemon import PATIENCE_S, samples, scenario_file, served
from support.waiting import until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_daemon_exports_the_trace_of_a_request_and_its_plans(tmp_path: Path) -> None:
    spans = tmp_path / "spans.jsonl"
    variables = {
        "OTEL_TRACES_EXPORTER": "file",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "SPANS_FILE": str(spans),
        "PYTHONPATH": os.pathsep.join((PYTHONPATH, installed(tmp_path / "packages"))),
    }
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    with served(scenario_file(tmp_path, "photos"), tmp_path / "state", **variables) as daemon:
        daemon.client.headers.update(headers)
        answer = daemon.infer("photos", samples(0, 1)[0][0], "", PATIENCE_S)
        assert answer.status_code == 200, answer.text
        until(lambda: "plan" in {span["name"] for span in exported(spans)}, daemon.said)
        assert daemon.stop() == 0, daemon.said()
    written = exported(spans)
    of_request = [span for span in written if span["context"]["trace_id"] == f"0x{TRACE}"]
    assert {"infer", "queue", "batch", "worker"} <= {span["name"] for span in of_request}
    plan = next(span for span in written if span["name"] == "plan")
    assert plan["attributes"]["migrator.planned_by"] == "static-4-3"
    assert plan["parent_id"] is None
