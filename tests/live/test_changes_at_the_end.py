"""A daemon that ends while a tenant comes, goes or is imported without end."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from support import PYTHONPATH
from support.faults import settled
from support.live_daemon import TENANT, Served, scenario_file, served
from support.waiting import until

ENDLESS = """
import time
from pathlib import Path

Path(__file__).with_suffix(".begun").touch()
while True:
    time.sleep(0.1)
"""


@contextmanager
def daemon_with_endless_model(folder: Path) -> Iterator[tuple[Served, dict[str, Any], Path]]:
    """A daemon, the section of a tenant whose import never ends, and a file that says it began."""
    path, modules = scenario_file(folder, "photos", "mail", window_s=60), folder / "modules"
    profiles = json.loads((folder / "profiles.json").read_text("utf-8"))
    profiles["profiles"].append({**profiles["profiles"][0], "model": "endless:Means"})
    (folder / "profiles.json").write_text(json.dumps(profiles), encoding="utf-8")
    modules.mkdir()
    (modules / "endless.py").write_text(ENDLESS, encoding="utf-8")
    (section,) = yaml.safe_load(TENANT.format(name="cameras", model="endless:Means"))
    section["profile"] = str(folder / "profiles.json")
    variables = {"PYTHONPATH": f"{PYTHONPATH}:{modules}"}
    with served(path, folder / "state", **variables) as daemon:
        settled(daemon)
        yield daemon, section, modules / "endless.begun"


@contextmanager
def being_added(daemon: Served, section: object, begun: Path) -> Iterator[list[httpx.Response]]:
    """The tenant is being imported; afterwards the answer is there."""
    answers: list[httpx.Response] = []

    def add() -> None:
        answers.append(
            httpx.post(f"{daemon.url}/admin/tenants", json={"admit": section}, timeout=60)
        )

    thread = threading.Thread(target=add)
    thread.start()
    until(begun.exists, "its import begins")
    yield answers
    thread.join()


def test_an_import_without_end_stops_no_worker_and_ends_with_the_daemon(tmp_path: Path) -> None:
    with daemon_with_endless_model(tmp_path) as (daemon, section, begun):
        with being_added(daemon, section, begun) as answers:
            before = daemon.status()["pids"]
            for pid in before.values():
                os.kill(pid, signal.SIGKILL)

            def are_replaced(now: dict[str, Any]) -> bool:
                others = [tenant["prepared"] for tenant in now["tenants"].values()]
                replaced = len(now["pids"]) == len(before) and now["pids"] != before
                return replaced and others == [2, 2]

            daemon.wait_for(are_replaced, "others take their places, and two more are prepared")
            assert daemon.stop() == 0
        (answer,) = answers
        assert (answer.status_code, "the daemon is stopping" in answer.text) == (503, True)
        log = daemon.log.read_text("utf-8")
        assert "Traceback" not in log
        (line,) = [line for line in log.splitlines() if "the daemon is stopping" in line]
        assert "refused with 503" in line
        stored = json.loads((tmp_path / "state" / "live" / "small" / "tenants.json").read_bytes())
        assert stored["added"] == {}
