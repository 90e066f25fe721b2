"""Acting on a real daemon, one for all cases, over HTTP as page and CLI do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.faults import settled, teach
from support.live_daemon import Served, samples, scenario_file, served

from migrator.records.store import read_records

PICTURES, _ = samples(0, 4)


def done(daemon: Served, action: str, tenant: str | None = None) -> str:
    status, answer = daemon.act(action, tenant)
    assert (status, answer.get("outcome")) == (200, "done"), answer
    return str(answer["words"])


def gpcs(now: dict[str, Any], tenant: str) -> float:
    task = f"{tenant}/inference"
    return sum(float(e["gpcs"]) for e in now["units"] if (e["task"], e["state"]) == (task, "ready"))


def held(now: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((unit["instance"], unit["state"]) for unit in now["units"])


def is_settled(now: dict[str, Any]) -> bool:
    return all(unit["state"] == "ready" for unit in now["units"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("acted")


@pytest.fixture(scope="module")
def scenario(folder: Path) -> Path:
    return scenario_file(folder, "photos", "cameras", window_s=3)


@pytest.fixture(scope="module")
def daemon(folder: Path, scenario: Path) -> Iterator[Served]:
    with served(scenario, folder / "state") as running:
        settled(running)
        yield running


def test_a_drained_tenant_answers_503_and_others_get_its_slices(daemon: Served) -> None:
    before = daemon.status()
    assert "takes no more requests" in done(daemon, "drain", "photos")
    refused = daemon.infer("photos", PICTURES[0], "refused")
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "30"
    assert "drained" in refused.json()["error"]
    assert daemon.infer("cameras", PICTURES[0], "taken").status_code == 200
    now = daemon.wait_for(
        lambda now: gpcs(now, "cameras") > gpcs(before, "cameras") and is_settled(now),
        "cameras has what photos had",
    )
    assert gpcs(now, "photos") == 0
    assert now["drained"] == ["photos"]
    assert done(daemon, "drain", "photos") == "photos was drained already"
    ready = httpx.get(f"{daemon.url}/v2/health/ready", timeout=20)
    assert ready.status_code == 200
    model = httpx.get(f"{daemon.url}/v2/models/photos/ready", timeout=20)
    assert (model.status_code, model.headers["retry-after"]) == (503, "30")


def test_undrained_it_gets_instances_and_is_answered(daemon: Served) -> None:
    assert "takes requests again" in done(daemon, "undrain", "photos")
    daemon.wait_for(lambda now: gpcs(now, "photos") > 0 and is_settled(now), "photos serves again")
    assert daemon.infer("photos", PICTURES[1], "again").status_code == 200
    assert daemon.status()["drained"] == []
    assert done(daemon, "undrain", "photos") == "photos was not drained"


def test_while_paused_nothing_changes_but_a_lost_worker_is_replaced(
    daemon: Served, folder: Path
) -> None:
    paused_s = time.time()
    assert "paused" in done(daemon, "pause")
    before = daemon.status()
    assert before["paused"]
    assert "followed once reconfiguration resumes" in done(daemon, "drain", "photos")
    victim, pid = next(iter(before["pids"].items()))
    os.kill(pid, signal.SIGKILL)
    daemon.wait_for(
        lambda now: victim not in now["pids"] and held(now) == held(before), "it is replaced"
    )
    path = folder / "state" / "live" / "small" / "records.db"
    daemon.wait_for(
        lambda _: any(
            (plan.reason, plan.at_s > paused_s) == ("photos is drained", True)
            for plan in read_records(path).plans
        ),
        "the drained tenant is planned without",
    )
    assert held(daemon.status()) == held(before)
    assert done(daemon, "pause") == "reconfiguration was paused already"
    assert "newest plan" in done(daemon, "resume")
    daemon.wait_for(lambda now: gpcs(now, "photos") == 0 and is_settled(now), "it is followed")
    done(daemon, "undrain", "photos")
    daemon.wait_for(lambda now: gpcs(now, "photos") > 0 and is_settled(now), "photos serves again")


def test_a_rolled_back_version_serves_also_after_a_restart(
    daemon: Served, scenario: Path, folder: Path
) -> None:
    assert daemon.act("roll-back", "unknown")[0] == 404
    teach(daemon, "photos", 1, 40, "taught")
    learned = daemon.wait_for(
        lambda now: now["tenants"]["photos"]["version"] == 2, "a second version serves"
    )
    assert learned["tenants"]["photos"]["back_to"] == [1]
    words = done(daemon, "roll-back", "photos")
    assert words == "photos: version 1 serves again, version 2 is withdrawn"
    answers = {daemon.infer("photos", picture, "").json()["model_version"] for picture in PICTURES}
    assert answers == {"1"}
    assert daemon.act("roll-back", "photos")[0] == 409
    path = folder / "state" / "live" / "small" / "records.db"
    daemon.wait_for(
        lambda _: any("from version 2" in version.why for version in read_records(path).versions),
        "it is recorded",
    )
    done(daemon, "drain", "photos")
    daemon.process.kill()
    daemon.process.wait()
    with served(scenario, folder / "state") as again:
        now = again.status()
        assert (now["tenants"]["photos"]["version"], now["drained"]) == (1, ["photos"])
        assert not now["paused"]
        done(again, "undrain", "photos")
        again.wait_for(lambda now: gpcs(now, "photos") > 0, "it serves")
        assert again.infer("photos", PICTURES[0], "").json()["model_version"] != "2"
        assert again.stop() == 0, again.said()
