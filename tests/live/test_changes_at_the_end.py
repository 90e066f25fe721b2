"""A daemon that ends while a tenant is imported without end."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from support import PYTHONPATH
from support.faults import settled
from support.live_daemon import scenario_file, section, served
from support.waiting import until

ENDLESS = """
import time
from pathlib import Path

Path(__file__).with_suffix(".begun").touch()
while True:
    time.sleep(0.1)
"""


def test_an_import_without_end_stops_no_worker_and_ends_with_the_daemon(tmp_path: Path) -> None:
    path, modules = scenario_file(tmp_path, "photos", "mail", window_s=60), tmp_path / "modules"
    profiles = json.loads((tmp_path / "profiles.json").read_text("utf-8"))
    profiles["profiles"].append({**profiles["profiles"][0], "model": "endless:Means"})
    (tmp_path / "profiles.json").write_text(json.dumps(profiles), encoding="utf-8")
    modules.mkdir()
    (modules / "endless.py").write_text(ENDLESS, encoding="utf-8")
    profile = str(tmp_path / "profiles.json")
    added_section = section(tmp_path, "cameras", model="endless:Means", profile=profile)
    variables = {"PYTHONPATH": f"{PYTHONPATH}:{modules}"}
    with served(path, tmp_path / "state", **variables) as daemon, ThreadPoolExecutor(1) as adding:
        settled(daemon)
        added = adding.submit(
            httpx.post, f"{daemon.url}/admin/tenants", json={"admit": added_section}, timeout=60
        )
        until((modules / "endless.begun").exists, "its import begins")
        before = daemon.status()["pids"]
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)

        def are_replaced(now: dict[str, Any]) -> bool:
            others = [tenant["prepared"] for tenant in now["tenants"].values()]
            replaced = len(now["pids"]) == len(before) and now["pids"] != before
            return replaced and others == [2, 2]

        daemon.wait_for(are_replaced, "others take their places, and two more are prepared")
        assert daemon.stop() == 0
        answer = added.result()
        assert (answer.status_code, "the daemon is stopping" in answer.text) == (503, True)
        assert "Traceback" not in daemon.log.read_text("utf-8")
    # it is stored once it serves
    stored = (tmp_path / "state" / "live" / "small" / "tenants.json").read_text("utf-8")
    assert json.loads(stored)["added"] == {}
