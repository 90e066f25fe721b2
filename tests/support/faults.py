"""What tests of faults look at from outside a daemon: processes, instances, records, labels."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from migrator.gpu.drivers.base import GpuInstance
from migrator.gpu.drivers.registry import open_driver
from migrator.io.processes import is_running
from migrator.records.store import read_records
from support.live_daemon import Served, samples
from support.serving import children
from support.waiting import until

STILL_S = 1.0
"""Without a change for so long, a plan is followed."""


def settled(daemon: Served) -> dict[str, Any]:
    """What it says once its plan is followed and nothing changes.

    On a busy machine the policy may not decide in the first window, because its warm-up still
    runs, and a plan that has just arrived has changed nothing yet.
    """
    since_s, units = time.monotonic(), None

    def is_settled(now: dict[str, Any]) -> bool:
        nonlocal since_s, units
        life = daemon.log.read_text(encoding="utf-8").rpartition("serving at")[2]
        ready = all(unit["state"] in ("ready", "training") for unit in now["units"])
        if now["units"] != units or not ready or " INFO    plan for " not in life:
            since_s, units = time.monotonic(), now["units"]
        return time.monotonic() - since_s > STILL_S and now["slot"] > 1 and bool(now["pids"])

    return daemon.wait_for(is_settled, "the plan is followed")


def instances(state: Path) -> tuple[GpuInstance, ...]:
    """On the emulated GPU, whoever made them."""
    with open_driver("emulated", 0, state=state) as driver:
        return driver.instances()


def users(state: Path) -> dict[int, str]:
    """Processes that use an instance, and what they say they are."""
    return {holder.pid: holder.name for instance in instances(state) for holder in instance.holders}


def family(pid: int) -> set[int]:
    """A daemon and all that it started: forkserver, workers, retrainers, the policy's process."""
    tree, look = {pid}, [pid]
    while look:
        for child in _children(look.pop()):
            if child not in tree:
                tree.add(child)
                look.append(child)
    return tree


def forkserver_of(daemon: Served) -> int:
    """Its process id; 0 while there is none."""
    for pid in children(daemon.process.pid):
        if b"forkserver_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return 0


def all_gone(pids: set[int]) -> bool:
    return not any(map(is_running, pids))


def events(state: Path, kind: str | None = None) -> list[str]:
    """What the last run wrote down, of that kind."""
    events = read_records(state / "live" / "small" / "records.db").events
    return [event.words for event in events if kind in (None, event.kind)]


def said(state: Path, *arguments: str, after: int = 0) -> str:
    """The event that has all these words, waited for; `after`: not among the first so many."""

    def found() -> str:
        new = events(state)[after:]
        return next((text for text in new if all(word in text for word in arguments)), "")

    text: str = until(found, f"an event with {arguments}")
    return text


def labels_of(state: Path) -> set[str]:
    """Ids of the requests whose labels are on disk."""
    path = state / "live" / "small" / "labels.db"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        return {request for (request,) in connection.execute("SELECT request FROM sample")}
    finally:
        connection.close()


def teach(daemon: Served, tenant: str, scenario: int, count: int, name: str) -> set[str]:
    """Ask about labelled pictures and send the labels; the ids of those that were acknowledged."""
    kept = set()
    for number, (picture, label) in enumerate(zip(*samples(scenario, count), strict=True)):
        asked = f"{name}-{number}"
        if daemon.infer(tenant, picture, asked).status_code == 200:
            answer = daemon.feedback(tenant, asked, int(label))
            assert answer.status_code == 200, answer.text
            kept.add(asked)
    return kept


def serves(daemon: Served, least: int) -> int:
    """Wait until that version, or one after it, answers a request; which it is."""
    picture = samples(0, 1)[0][0]

    def answered() -> int:
        answer = daemon.infer("photos", picture, "")
        version = int(answer.json()["model_version"]) if answer.status_code == 200 else 0
        return version if version >= least else 0

    answered_by: int = until(answered, f"a request is answered by version {least}")
    return answered_by


def _children(pid: int) -> set[int]:
    try:
        return children(pid)
    except OSError:
        return set()
