"""Plans that fail, are invalid, late or missing: instances serve on, and an event says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faults import all_gone, events, family, said, serves
from support.live_daemon import Served, scenario_file, served
from support.live_policies import MOOD
from support.waiting import until

POLICY = "support.live_policies:Moody"
MOODS = {
    "raises": ("could not decide", "ValueError: no idea today"),
    "overlaps": ("made an invalid decision", "no room beside"),
    "late": ("came after its window was over",),
    "never": ("is still busy with an earlier window", "the layout stays as it is"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("moods")
    (folder / "mood").write_text("good", encoding="utf-8")
    path, state = scenario_file(folder, "photos", window_s=2, policy=POLICY), folder / "state"
    with served(path, state, **{MOOD: str(folder / "mood")}) as daemon:
        daemon.wait_for(_follows_the_split, "its first plan is followed")
        yield daemon, folder
        processes = family(daemon.process.pid)
        daemon.process.kill()
    # the policy's process too, which thinks for ever
    until(lambda: all_gone(processes), "all processes end with the daemon")


@pytest.mark.parametrize("mood", MOODS)
def test_what_is_held_serves_on_and_an_event_says_why(run: tuple[Served, Path], mood: str) -> None:
    daemon, folder = run
    before, held = len(events(folder / "state")), _ready(daemon)
    _show(folder, mood)  # it is asked again after the failure before
    said(folder / "state", *MOODS[mood], after=before)
    serves(daemon, 1)
    assert _ready(daemon) == held


def _follows_the_split(now: dict[str, Any]) -> bool:
    """Four instances are ready, and none is still created or destroyed for the first layout."""
    return [(unit["gpcs"], unit["state"]) for unit in now["units"]] == [(1, "ready")] * 4


def _ready(daemon: Served) -> set[str]:
    ready = {unit["instance"] for unit in daemon.status()["units"] if unit["state"] == "ready"}
    assert ready
    return ready


def _show(folder: Path, mood: str) -> None:
    """Let it be in that mood when it is asked next."""
    (folder / "mood").write_text(mood, encoding="utf-8")
    shown = folder / "mood.shown"
    until(lambda: shown.read_text(encoding="utf-8") == mood, f"it is asked and {mood}")
