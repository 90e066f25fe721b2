"""A real daemon, a known number of requests and labels: what Prometheus and the log then say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from support.live_daemon import Served, samples, scenario_file, served
from support.promql import promtool
from support.watched_run import eventful, sample_names

SENT, LABELLED, TOO_LATE = 30, 24, 5


def metrics(daemon: Served) -> tuple[str, dict[tuple[str, frozenset[tuple[str, str]]], float]]:
    text = httpx.get(f"{daemon.url}/metrics", timeout=20).text
    families = text_string_to_metric_families(text)
    return text, {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def asked(daemon: Served, right: list[bool]) -> int:
    """Requests, labels for some of them, and a few without a chance; how many were in time."""
    in_time = 0
    pictures, labels = samples(0, SENT)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        answer = daemon.infer("photos", picture, f"q{number}")
        assert answer.status_code == 200
        assert answer.headers["x-request-id"] == f"q{number}"
        is_late = answer.json()["parameters"]["late"]
        in_time += not is_late
        said = {output["name"]: output["data"] for output in answer.json()["outputs"]}
        if number < LABELLED:
            right.append(said["label"][0] == label and not is_late)
            assert daemon.feedback("photos", f"q{number}", int(label)).status_code == 200
    repeated = daemon.feedback("photos", "q0", int(labels[0]))
    other = daemon.feedback("photos", "q0", int(labels[0]) + 1)
    assert (repeated.status_code, other.status_code) == (200, 409)
    assert f"q0 of photos already has label {labels[0]}, which is kept" in other.json()["error"]
    for number in range(TOO_LATE):
        late = daemon.infer("photos", pictures[0], f"hopeless-{number}", 0.00001)
        assert late.status_code == 504
    return in_time


def lines(daemon: Served) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log.read_text(encoding="utf-8").splitlines()]


def test_counters_agree_with_what_was_sent_and_the_log_tells_why(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos", window_s=600), tmp_path / "state"
    right: list[bool] = []
    with served(path, state, "--log-format", "json") as daemon:
        daemon.wait_for(
            lambda now: now["slot"] > 2 and all(e["state"] == "ready" for e in now["units"]),
            "the first plan is followed",
        )
        in_time = asked(daemon, right)
        text, values = metrics(daemon)
        units = daemon.status()["units"]
        assert daemon.stop() == 0, daemon.said()

    def value(name: str, **labels: str) -> float:
        return values[name, frozenset(labels.items())]

    assert value("migrator_received_total", tenant="photos") == SENT + TOO_LATE
    assert value("migrator_requests_total", tenant="photos", outcome="in_time") == in_time
    assert value("migrator_requests_total", tenant="photos", outcome="dropped") == TOO_LATE
    assert value("migrator_refusals_total", tenant="photos", code="504") == TOO_LATE
    assert value("migrator_latency_seconds_count", tenant="photos") == SENT
    assert value("migrator_labels_total", tenant="photos", outcome="stored") == LABELLED
    assert value("migrator_labels_total", tenant="photos", outcome="repeated") == 1
    assert value("migrator_labels_total", tenant="photos", outcome="conflicting") == 1
    assert value("migrator_goodput_total", tenant="photos") == sum(right)
    assert value("migrator_judged_total", tenant="photos") <= LABELLED
    assert value("migrator_model_version", tenant="photos") == 1
    assert value("migrator_plans_total", outcome="taken") >= 1
    assert value("migrator_queue_length", tenant="photos") == 0
    ready = [labels for name, labels in values if name == "migrator_instance_info"]
    assert len(ready) == len(units)
    assert all(dict(labels)["GPU_I_ID"] for labels in ready)
    for step in ("create", "warm"):
        assert value("migrator_reconfigurations_total", kind=step, outcome="done") >= len(units)
    names = {name for name, _ in values}
    absent = sample_names(eventful(tmp_path)) - names
    assert all("forecast" in name or "gap" in name or "expected" in name for name in absent)
    _check_log(lines(daemon), len(units))
    if shutil.which("promtool"):
        promtool("check", "metrics", given=text)


def _check_log(lines: list[dict[str, Any]], units: int) -> None:
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    refused = [line for line in lines if line.get("status") == 504]
    assert [line["request_id"] for line in refused] == [f"hopeless-{n}" for n in range(TOO_LATE)]
    decided = [line for line in lines if "decision" in line]
    warmed = [line for line in decided if line["decision"] == "warm"]
    assert len(warmed) >= units
    assert all(line["because"] and line["tenant"] == "photos" for line in warmed)
    last = [line for line in decided if line["decision"] == "destroy"][-1]
    assert last["because"] == "the daemon stops and frees what it made"
