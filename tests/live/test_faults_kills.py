"""The daemon killed with -9 at one moment after the other, and started again each time.

Whatever it was at: every acknowledged label is there, the last good model serves, and nothing of
an earlier life is left, neither process nor instance.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from support.faults import all_gone, family, instances, labels_of, serves, users
from support.live_daemon import Served, samples, scenario_file, served, started
from support.waiting import until

PACE = {"MIGRATOR_EMULATED_PACE": "0.5"}
"""Half as long as a real GPU takes to create an instance: there is a middle."""


class Lives:
    """The daemons of one state folder, one after the other."""

    def __init__(self, folder: Path) -> None:
        model = "support.slow_model:Slow"
        self.path = scenario_file(folder, "photos", window_s=3, model=model)
        self.state = folder / "state"
        self.acknowledged: set[str] = set()
        self.version = 1
        self.left: set[int] = set()
        """Processes of the lives before."""

    @property
    def home(self) -> Path:
        return self.state / "live" / "small"

    def newest(self) -> Path:
        """What is there once the next version is kept."""
        return self.home / "models" / "photos" / f"{self.version + 1:06d}.json"

    def kill(self, process: subprocess.Popen[str]) -> None:
        """At once, with whatever it is at."""
        self.left |= family(process.pid)
        process.kill()
        process.wait()

    def check(self, daemon: Served) -> None:
        """After a restart."""
        mine = family(daemon.process.pid)
        until(lambda: all_gone(self.left - mine), "the processes of earlier lives are gone")
        assert labels_of(self.state) >= self.acknowledged
        good = {int(path.stem) for path in (self.home / "models" / "photos").glob("*.json")}
        assert serves(daemon, self.version) in good
        until(lambda: self._all_held_by_us(daemon), "every instance is of this life")

    def _all_held_by_us(self, daemon: Served) -> bool:
        planned = {(unit["start"], unit["gpcs"]) for unit in daemon.status()["units"]}
        there = {
            (instance.place.start, int(instance.place.profile[0]))
            for instance in instances(self.state)
        }
        return there <= planned and set(users(self.state)) <= family(daemon.process.pid)


class Storm(threading.Thread):
    """Labels without end, with their inputs; what was acknowledged is known."""

    def __init__(self, daemon: Served) -> None:
        super().__init__()
        self._url = f"{daemon.url}/v2/models/photos/feedback"
        self._name = f"storm-{daemon.process.pid}"
        self.acknowledged: set[str] = set()
        self.start()

    def run(self) -> None:
        """Until the daemon does not answer."""
        with suppress(httpx.HTTPError), httpx.Client(timeout=20) as client:
            for number, (picture, label) in enumerate(cycle(zip(*samples(1, 60), strict=True))):
                message = _labelled(f"{self._name}-{number}", picture, int(label))
                if client.post(self._url, json=message).status_code == 200:
                    self.acknowledged.add(message["id"])


def _labelled(request: str, picture: NDArray[np.uint8], label: int) -> dict[str, Any]:
    tensor = {"name": "input", "datatype": "UINT8", "shape": [1, *picture.shape]}
    data = picture.reshape(-1).tolist()
    return {"id": request, "label": label, "inputs": [{**tensor, "data": data}]}


def _while_retraining_and_writing_labels(lives: Lives) -> None:
    with served(lives.path, lives.state, **PACE) as daemon:
        storm = Storm(daemon)
        epoch = lives.home / "trainings" / "photos" / "retrain" / "epochs" / "000000.json"
        until(epoch.exists, "an epoch of the retraining is done", look_s=0.01)
        assert not lives.newest().exists()
        lives.kill(daemon.process)
        storm.join()
        assert storm.acknowledged
        lives.acknowledged |= storm.acknowledged


def _while_creating(lives: Lives) -> None:
    with started(lives.path, lives.state, **PACE) as process:

        def half_made() -> bool:
            return any(instance.uuid is None for instance in instances(lives.state))

        until(half_made, "an instance is half made", look_s=0.005)
        lives.kill(process)


def _while_warming(lives: Lives) -> None:
    """And one of its workers cannot even notice that it is gone."""
    with started(lives.path, lives.state, **PACE) as process:
        warming = until(lambda: users(lives.state), "a worker warms", look_s=0.005)
        os.kill(next(iter(warming)), signal.SIGSTOP)
        lives.kill(process)


def _while_swapping(lives: Lives) -> None:
    with served(lives.path, lives.state, **PACE) as daemon:
        lives.check(daemon)
        until(lives.newest().exists, "a new version is kept, and workers load it", look_s=0.005)
        lives.kill(daemon.process)
    lives.version += 1


MOMENTS = (
    _while_retraining_and_writing_labels,
    _while_creating,
    _while_warming,
    _while_swapping,
)


def test_killed_at_any_moment_it_goes_on_from_what_it_had_promised(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    for moment in MOMENTS:
        moment(lives)
        assert labels_of(lives.state) >= lives.acknowledged, moment.__name__
    with served(lives.path, lives.state, **PACE) as daemon:
        lives.check(daemon)
        processes = family(daemon.process.pid)
        assert daemon.stop() == 0, daemon.said()
    assert not instances(lives.state)
    until(lambda: all_gone(processes | lives.left), "no process is left")
