"""Files of a daemon that are damaged while it is stopped, or moved away while it runs: it serves,
and says what is wrong."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from support.faults import labels_of, serves, teach
from support.live_daemon import samples, scenario_file, served

from migrator.records.store import read_records


def damage(path: Path) -> None:
    """Cut the file off in the middle: pages are missing."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def test_a_moved_state_folder_is_used_again_and_damaged_files_are_set_aside(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos", window_s=2), tmp_path / "state"
    home, away = state / "live" / "small", tmp_path / "away"
    picture, label = samples(1, 1)
    with served(path, state) as daemon:
        answers = teach(daemon, "photos", 1, 30, "lesson")
        assert daemon.status()["files"] == ""
        state.rename(away)
        first = daemon.status()["window"]
        assert daemon.infer("photos", picture[0], "asked").status_code == 200
        for answer in (
            daemon.feedback("photos", "asked", int(label[0])),
            daemon.upload("photos", *samples(1, 3), "upload"),
        ):
            assert answer.status_code == 503
            assert "labels.db: the file of labels was moved or deleted" in answer.json()["error"]
        assert "labels.db" in daemon.status()["files"]
        # windows begin and retrainings are due, and nothing makes another state folder
        daemon.wait_for(lambda now: now["window"] > first + 2, "windows go on")
        assert not state.exists()
        errors = [line for line in daemon.log.read_text("utf-8").splitlines() if " ERROR " in line]
        assert len([error for error in errors if "labels are refused" in error]) == 1
        assert len([error for error in errors if "records could not be written" in error]) == 1
        away.rename(state)
        assert daemon.status()["files"] == ""
        assert daemon.feedback("photos", "asked", int(label[0])).status_code == 200
        serves(daemon, 1)
        assert daemon.stop() == 0, daemon.said()
    assert labels_of(state) >= answers | {"asked"}
    paths = {"journal.db": state, "labels.db": home, "records.db": home}
    for name, folder in paths.items():
        damage(folder / name)
    with served(path, state) as daemon:
        assert daemon.infer("photos", picture[0], "second").status_code == 200
        assert daemon.feedback("photos", "second", int(label[0])).status_code == 200
        families = text_string_to_metric_families(daemon.client.get(f"{daemon.url}/metrics").text)
        counted = {
            sample.labels["file"]: sample.value
            for family in families
            for sample in family.samples
            if sample.name == "migrator_damaged_files_total"
        }
        assert counted == dict.fromkeys(paths, 1)
        log = daemon.log.read_text(encoding="utf-8")
        assert daemon.stop() == 0, daemon.said()
    events = [event.words for event in read_records(home / "records.db").events]
    for name, folder in paths.items():
        (aside,) = folder.glob(f"{name}.damaged-*Z")
        assert any(name in event and str(aside) in event for event in events)
        assert any("ERROR" in line.upper() and str(aside) in line for line in log.splitlines())
