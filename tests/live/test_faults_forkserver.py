"""A forkserver that dies and cannot be restarted: the workers that live serve on, and no plan takes
them from their instances."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from support.faults import forkserver_of, said, serves
from support.live_daemon import scenario_file, served
from support.waiting import until


def test_plans_wait_and_workers_serve_until_processes_can_be_started_again(tmp_path: Path) -> None:
    policy = "support.live_policies:moving"
    path, state = scenario_file(tmp_path, "photos", window_s=3, policy=policy), tmp_path / "state"
    logs, away = state / "live" / "small" / "workers", tmp_path / "away"
    with served(path, state) as daemon:
        daemon.wait_for(lambda now: [unit["gpcs"] for unit in now["units"]] == [3], "it is moved")
        logs.rename(away)  # there is nowhere to write its log to, so that it cannot be restarted
        os.kill(forkserver_of(daemon), signal.SIGKILL)
        said(state, "the forkserver of photos died", "workers go on serving")
        held = daemon.wait_for(
            lambda now: (
                now["pids"] and {unit["state"] for unit in now["units"]} <= {"ready", "idle"}
            ),
            "what had begun is done",
        )
        assert not held["paused"]
        now = daemon.wait_for(lambda now: now["window"] > held["window"] + 1, "windows go on")
        assert (now["pids"], _ready(now)) == (held["pids"], _ready(held))
        assert now["tenants"]["photos"]["prepared"] > 0
        serves(daemon, 1)
        away.rename(logs)
        said(state, "the forkserver of photos runs again")
        until(lambda: forkserver_of(daemon), "there is a forkserver")
        daemon.wait_for(lambda now: now["pids"] and now["pids"] != held["pids"], "it moves again")
        assert daemon.stop() == 0, daemon.said()


def _ready(now: dict[str, Any]) -> list[dict[str, Any]]:
    return [unit for unit in now["units"] if unit["state"] == "ready"]
