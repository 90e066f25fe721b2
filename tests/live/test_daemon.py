"""The whole daemon with real processes: it serves, learns, survives kills, frees what it made."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faults import family, settled, teach
from support.live_daemon import Served, samples, scenario_file, served
from support.waiting import LIMIT_S, until

from migrator.gpu.drivers.registry import open_driver
from migrator.io.processes import process_environment
from migrator.records.store import read_records

TOKENS = {"SHOP_ADMIN": "a" * 40, "PYTHON_OF_PHOTOS": "p" * 40, "MIGRATOR_ADMIN_TOKEN": "m" * 40}


def _instances(state: Path) -> int:
    with open_driver("emulated", 0, state=state) as driver:
        return len(driver.instances())


def test_it_serves_learns_swaps_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos", "cameras"), tmp_path / "state"
    with served(path, state) as daemon:
        first = daemon.status()
        assert {tenant["version"] for tenant in first["tenants"].values()} == {1}
        assert len(teach(daemon, "photos", 1, 40, "before")) == 40
        now_served = daemon.wait_for(
            lambda now: now["tenants"]["photos"]["version"] == 2, "a second version serves"
        )
        assert now_served["tenants"]["cameras"]["version"] == 1
        trainings = state / "live" / "small" / "trainings"
        # a version has a copy of what a training made: its checkpoints are not needed any more
        until(lambda: not any(file.is_file() for file in trainings.rglob("*")))
        workers = [unit for unit in now_served["units"] if unit["state"] == "ready"]
        assert len(workers) >= 2
        assert daemon.stop() == 0, daemon.said()
    assert _instances(state) == 0
    records = read_records(state / "live" / "small" / "records.db")
    assert any(version.adopted and version.tenant == "photos" for version in records.versions)
    assert sum(window.received for window in records.tenant_windows) > 0


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A daemon with tokens in a window that does not end, and its folder."""
    folder = tmp_path_factory.mktemp("steady")
    path = scenario_file(folder, "photos", window_s=600)
    names = "{admin: SHOP_ADMIN, photos: PYTHON_OF_PHOTOS}"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("live: {port: 0}", f"live: {{port: 0, token_variables: {names}}}"),
        encoding="utf-8",
    )
    with served(path, folder / "state", token=TOKENS["SHOP_ADMIN"], **TOKENS) as daemon:
        yield daemon, folder
        assert daemon.stop() == 0


def test_token_variables_reach_no_process_of_a_daemon(steady: tuple[Served, Path]) -> None:
    daemon, _ = steady
    settled(daemon)
    children = family(daemon.process.pid) - {daemon.process.pid}
    assert len(children) >= 4  # fork server, workers, the policy's process, retrainers
    for pid in children:
        values = set(process_environment(pid).values())
        assert not values & set(TOKENS.values()), (pid, values)


def test_a_worker_that_is_killed_is_replaced_while_requests_go_on(
    steady: tuple[Served, Path],
) -> None:
    daemon, _ = steady
    pictures, _ = samples(0, 60)
    codes: list[int] = []
    now = daemon.wait_for(
        lambda now: now["slot"] > 2 and all(e["state"] == "ready" for e in now["units"]),
        "the first plan is followed",
    )
    victim, pid = next(iter(now["pids"].items()))

    def ask() -> None:
        codes.extend(
            daemon.infer("photos", picture, f"q{number}").status_code
            for number, picture in enumerate(pictures)
        )

    asking = threading.Thread(target=ask)
    asking.start()
    os.kill(pid, signal.SIGKILL)
    asking.join()
    daemon.wait_for(
        lambda now: victim not in (now["tenants"]["photos"]["workers"] or [victim]),
        "another worker serves",
    )
    assert set(codes) == {200}, daemon.said()


def test_a_terminal_that_is_closed_ends_it_as_ctrl_c_does(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos"), tmp_path / "state"
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored, and inherited, under nohup
    try:
        with served(path, state) as daemon:
            settled(daemon)
            daemon.process.send_signal(signal.SIGHUP)
            assert daemon.process.wait(LIMIT_S) == 0, daemon.said()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert _instances(state) == 0
