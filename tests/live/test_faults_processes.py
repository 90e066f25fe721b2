"""Processes of a live daemon that die or hang, others on its GPU, clients that leave: it serves on.

One daemon for all of it, as it would be in a bad hour.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from support.faults import instances, said, serves, settled, teach, users
from support.live_daemon import Served, samples, scenario_file, served
from support.waiting import LIMIT_S, until

from migrator.core.catalogue import Place
from migrator.gpu.drivers.base import GpuInstance, RefusedError
from migrator.gpu.drivers.registry import open_driver
from migrator.gpu.journal import Journal
from migrator.gpu.layout import Layout
from migrator.gpu.partitioner import Partitioner
from migrator.io.processes import is_running, open_files


class Hour(NamedTuple):
    """The daemon, where it keeps its state, and what of its GPU is not its own."""

    daemon: Served
    state: Path
    others: list[GpuInstance]
    lingering: list[socket.socket]
    """Clients that sent half a request when the hour began, and never the rest."""

    @property
    def version(self) -> int:
        """Of the model that serves."""
        return int(self.daemon.status()["tenants"]["photos"]["version"])


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hour]:
    folder = tmp_path_factory.mktemp("hour")
    model, state = "support.slow_model:Slow", folder / "state"
    path = scenario_file(folder, "photos", window_s=4, model=model)
    others = [_foreign_instance(state)]
    with served(path, state) as daemon:
        yield Hour(daemon, state, others, _half(daemon))
        assert daemon.stop() == 0, daemon.said()
    assert set(instances(state)) == set(others), "instances of others are untouched"


def _foreign_instance(state: Path) -> GpuInstance:
    """Made with our own tools by another owner, before the daemon begins."""
    state.mkdir()
    with open_driver("emulated", 0, state=state, board="A100-40GB") as driver:
        other = Partitioner(driver, Journal(state / "journal.db"), "another owner")
        other.apply(Layout((Place(2, "1g.5gb"),)))
        (instance,) = driver.instances()
    return instance


def _taken(state: Path) -> GpuInstance:
    """As with nvidia-smi: without our lock, and a retraining would have gone there."""
    with open_driver("emulated", 0, state=state) as driver:
        for start in range(7):
            with suppress(RefusedError):
                return driver.create(Place(start, "1g.5gb"))
    raise AssertionError("the plan leaves no room")


def test_a_worker_killed_while_it_warms_is_replaced(hour: Hour) -> None:
    before = set(settled(hour.daemon)["pids"].values())
    for pid in before:
        os.kill(pid, signal.SIGKILL)

    def warming() -> set[int]:
        """They use an instance and have not been routed to yet: loading takes a while."""
        serving = set(hour.daemon.status()["pids"].values())
        return {pid for pid in users(hour.state) if is_running(pid)} - serving - before

    victims = until(warming, "another worker warms", look_s=0.01)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    serves(hour.daemon, hour.version)
    assert not victims & set(settled(hour.daemon)["pids"].values())
    for pid in victims:
        said(hour.state, f"process {pid}")


def test_what_others_take_is_planned_around(hour: Hour) -> None:
    said(hour.state, "foreign instances on the GPU", str(hour.others[0].place))
    settled(hour.daemon)
    hour.others.append(_taken(hour.state))
    said(
        hour.state,
        "foreign instances on the GPU",
        str(hour.others[0].place),
        str(hour.others[1].place),
    )
    serves(hour.daemon, hour.version)


def _retrainer(state: Path) -> int:
    return next((pid for pid, name in users(state).items() if "retrain photos" in name), 0)


def test_a_retraining_killed_in_the_middle_goes_on_from_its_checkpoint(hour: Hour) -> None:
    folder = hour.state / "live" / "small"
    before = hour.version
    first = folder / "trainings" / "photos" / "retrain" / "epochs" / "000000.json"
    with ThreadPoolExecutor(1) as teaching:
        taught = teaching.submit(teach, hour.daemon, "photos", 1, 24, "lesson")
        pid = until(lambda: _retrainer(hour.state), "it is retrained", look_s=0.01)
        until(first.exists, "an epoch is done", look_s=0.005)
        os.kill(pid, signal.SIGKILL)
        now = hour.daemon.status()
        written = {first.stat().st_mtime_ns}
        # one that hangs does not keep the others from taking the new model
        hangs = next(iter(hour.daemon.status()["pids"].values()))
        os.kill(hangs, signal.SIGSTOP)

        def is_adopted() -> bool:
            with suppress(FileNotFoundError):  # removed once the model is kept as a version
                written.add(first.stat().st_mtime_ns)
            return bool(hour.daemon.status()["tenants"]["photos"]["version"] == before + 1)

        until(is_adopted, "the retrained model is adopted", look_s=0.005)
    assert len(written) == 1, "the first epoch was not done again"
    assert len(taught.result()) == 24
    said(hour.state, f"photos: version {before + 1} in ")
    assert is_running(hangs)
    os.kill(hangs, signal.SIGKILL)
    said(hour.state, "retrain was lost", "goes on from its last epoch")
    about = (folder / "models" / "photos" / f"{before + 1:06d}.json").read_text(encoding="utf-8")
    assert json.loads(about.partition("\n")[2])["about"]["window"] <= now["window"]
    serves(hour.daemon, before + 1)


def test_a_worker_that_hangs_is_killed_and_replaced(hour: Hour) -> None:
    hung = set(settled(hour.daemon)["pids"].values())
    for pid in hung:
        os.kill(pid, signal.SIGSTOP)
    pictures = samples(0, 24)[0]
    with ThreadPoolExecutor(8) as asking:
        answers = asking.map(lambda picture: hour.daemon.infer("photos", picture, ""), pictures)
        codes = {answer.status_code for answer in answers}
    assert codes <= {200, 503, 504}
    until(lambda: not any(map(is_running, hung)), "the workers that hang are killed")
    serves(hour.daemon, hour.version)
    assert not hung & set(settled(hour.daemon)["pids"].values())
    said(hour.state, "did not answer within")


def _request() -> bytes:
    """A whole inference request."""
    picture = samples(0, 1)[0]
    tensor = {
        "name": "input",
        "datatype": "UINT8",
        "shape": picture.shape,
        "data": picture.reshape(-1).tolist(),
    }
    body = json.dumps({"inputs": [tensor]}).encode()
    head = "POST /v2/models/photos/infer HTTP/1.1\r\nhost: localhost\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def _connected(daemon: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(daemon.url).port or 0), LIMIT_S)


def _half(daemon: Served) -> list[socket.socket]:
    """Half a head, or half a body."""
    lingering = [_connected(daemon) for _ in range(4)]
    for number, connection in enumerate(lingering):
        connection.sendall((_request()[:40], _request()[:-100])[number % 2])
    return lingering


def _sockets(pid: int) -> int:
    return sum(file.startswith("socket:") for file in open_files(pid))


def test_clients_that_leave_or_send_half_a_request_leave_nothing_behind(hour: Hour) -> None:
    for connection in hour.lingering:
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408 "), answer
        connection.close()
    settled(hour.daemon)
    pid, request = hour.daemon.process.pid, _request()
    before = _sockets(pid)
    for cut in (len(request), len(request) - 100, 40, 0):
        for _ in range(20):
            with _connected(hour.daemon) as leaving:
                leaving.sendall(request[:cut])
    hour.daemon.wait_for(lambda now: now["tenants"]["photos"]["waiting"] == 0, "no request waits")
    until(lambda: _sockets(pid) <= before, "every connection is given back")
    serves(hour.daemon, hour.version)
