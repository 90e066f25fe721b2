"""The whole daemon with real processes: it serves, learns, survives kills, frees what it made."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from support.live_daemon import Served, samples, scenario_file, served

from migrator.gpu.drivers.registry import open_driver
from migrator.records.store import read_records


def _instances(state: Path) -> int:
    with open_driver("emulated", 0, state=state) as driver:
        return len(driver.instances())


def _teach(daemon: Served, tenant: str, scenario: int, count: int, name: str) -> int:
    """Ask about labelled pictures, send the labels; how many were answered correctly."""
    right = 0
    for number, (picture, label) in enumerate(zip(*samples(scenario, count), strict=True)):
        answer = daemon.infer(tenant, picture, f"{name}-{number}")
        assert answer.status_code == 200, answer.text
        said = {each["name"]: each["data"] for each in answer.json()["outputs"]}
        right += said["label"][0] == label
        assert daemon.feedback(tenant, f"{name}-{number}", int(label)).status_code == 200
    return right


def test_it_serves_learns_swaps_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos", "cameras"), tmp_path / "state"
    with served(path, state) as daemon:
        first = daemon.status()
        assert {each["version"] for each in first["tenants"].values()} == {1}
        assert _teach(daemon, "photos", 1, 40, "before") < 20  # classes it has never seen
        found = daemon.wait_for(
            lambda now: now["tenants"]["photos"]["version"] == 2, "a second version serves"
        )
        assert found["tenants"]["cameras"]["version"] == 1
        assert _teach(daemon, "photos", 1, 20, "after") > 10
        workers = [each for each in found["units"] if each["state"] == "ready"]
        assert len(workers) >= 2
        assert daemon.stop() == 0, daemon.said()
    assert _instances(state) == 0
    records = read_records(state / "live" / "small" / "records.db")
    assert any(each.adopted and each.tenant == "photos" for each in records.versions)
    assert sum(each.received for each in records.tenant_windows) > 0


def test_a_worker_that_is_killed_is_replaced_while_requests_go_on(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos", window_s=600), tmp_path / "state"
    pictures, _ = samples(0, 60)
    codes: list[int] = []
    with served(path, state) as daemon:
        settled = daemon.wait_for(
            lambda now: now["slot"] > 2 and all(e["state"] == "ready" for e in now["units"]),
            "the first plan is followed",
        )
        victim, pid = next(iter(settled["pids"].items()))

        def ask() -> None:
            codes.extend(
                daemon.infer("photos", each, f"q{number}").status_code
                for number, each in enumerate(pictures)
            )

        asking = threading.Thread(target=ask)
        asking.start()
        os.kill(pid, signal.SIGKILL)
        asking.join()
        daemon.wait_for(
            lambda now: (
                victim not in now["tenants"]["photos"]["workers"]
                and len(now["tenants"]["photos"]["workers"]) >= 1
            ),
            "another worker serves",
        )
        assert set(codes) == {200}, daemon.said()
        assert daemon.stop() == 0


def test_killed_and_started_again_it_serves_the_last_model_and_knows_its_labels(
    tmp_path: Path,
) -> None:
    path, state = scenario_file(tmp_path, "photos"), tmp_path / "state"
    with served(path, state) as daemon:
        _teach(daemon, "photos", 1, 40, "first")
        daemon.wait_for(lambda now: now["tenants"]["photos"]["version"] == 2, "a second version")
        window = daemon.status()["window"]
        _teach(daemon, "photos", 1, 3, "accepted")
        daemon.process.kill()
        daemon.process.wait()
    with served(path, state) as again:
        now = again.status()
        assert now["tenants"]["photos"]["version"] >= 2
        assert now["window"] > window
        repeated = again.feedback("photos", "accepted-0", 0)
        assert repeated.status_code in (200, 404, 409), repeated.text
        assert _teach(again, "photos", 1, 10, "second") > 5
        assert again.stop() == 0, again.said()
    assert _instances(state) == 0


def test_two_daemons_do_not_share_a_gpu(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos", window_s=600), tmp_path / "state"
    with served(path, state) as daemon:
        with pytest.raises(AssertionError, match="process"), served(path, state):
            pass
        assert daemon.status()["tenants"]["photos"]["version"] == 1
        assert daemon.stop() == 0
