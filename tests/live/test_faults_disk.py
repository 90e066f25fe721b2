"""A full disk: the old model serves on, labels are refused, and with room again it goes on."""

from __future__ import annotations

from pathlib import Path

from support.faults import labels_of, said, serves, settled, teach
from support.full_disk import FullDisk
from support.live_daemon import samples, scenario_file, served
from support.waiting import until


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_nothing_half_is_left_and_nothing_is_promised_that_is_not_kept(tmp_path: Path) -> None:
    disk = FullDisk(tmp_path)
    path, state = scenario_file(tmp_path, "photos", window_s=3), tmp_path / "state"
    home = state / "live" / "small"
    models = home / "models" / "photos"
    with served(path, state, LD_PRELOAD=str(disk.library)) as daemon:
        first = _files(models)
        settled(daemon)
        with disk.below(state / "emulated"):
            teach(daemon, "photos", 1, 40, "lesson")
            said(state, "gpu-0.json", "No space left on device")  # nothing is created or destroyed
            assert serves(daemon, 1) == 1
        with disk.below(home / "trainings"):
            said(state, "photos", "trainings", "No space left on device")
            assert not list((home / "trainings").rglob("*.unfinished"))
        with disk.below(models):
            said(state, "photos", str(models), "No space left on device")
            assert _files(models) == first
            assert serves(daemon, 1) == 1
        # what could not be kept was not learned: it is learned now, without another label
        serves(daemon, 2)
        picture, label = samples(1, 1)
        daemon.infer("photos", picture[0], "unlucky")
        with disk.below(home / "labels.db"):
            refused = daemon.feedback("photos", "unlucky", int(label[0]))
            lost = daemon.upload("photos", *samples(1, 30), "unlucky")
        for answer in (refused, lost):
            assert answer.status_code == 507
            assert "not stored" in answer.json()["error"]
        assert not [request for request in labels_of(state) if request.startswith("unlucky")]
        said(state, "photos: labels are refused")
        with disk.below(home / "records.db"):
            serves(daemon, 2)
        assert daemon.feedback("photos", "unlucky", int(label[0])).status_code == 200
        again = daemon.upload("photos", *samples(1, 30), "unlucky")
        assert again.json() == {"id": "unlucky", "stored": 30, "repeated": 0}
        kept = [request for request in labels_of(state) if request.startswith("unlucky")]
        assert "unlucky" in kept
        assert len(kept) == 31
        assert daemon.stop() == 0, daemon.said()


def test_a_daemon_starts_and_serves_on_a_full_disk_and_goes_on_once_there_is_room(
    tmp_path: Path,
) -> None:
    disk = FullDisk(tmp_path)
    path, state = scenario_file(tmp_path, "photos", window_s=3), tmp_path / "state"
    home, (picture, label) = state / "live" / "small", samples(1, 1)
    with served(path, state, LD_PRELOAD=str(disk.library)) as daemon:
        teach(daemon, "photos", 1, 5, "before")
        assert daemon.stop() == 0, daemon.said()
    with disk.below(home), served(path, state, LD_PRELOAD=str(disk.library)) as daemon:
        assert daemon.infer("photos", picture[0], "asked").status_code == 200
        assert daemon.feedback("photos", "asked", int(label[0])).status_code == 507
        status, answer = daemon.act("drain", "photos")
        assert (status, "cannot be written" in answer["error"]) == (507, True), answer
        settled(daemon)
        disk.empty()
        until(
            lambda: daemon.feedback("photos", "asked", int(label[0])).status_code == 200,
            "labels are kept again",
        )
        assert "asked" in labels_of(state)
        said(state, "asked for a plan")
        with disk.below(home):
            assert daemon.stop() == 0, daemon.said()
