"""Labelled samples that are uploaded before a window are learned in it."""

from __future__ import annotations

from pathlib import Path

from support.live_daemon import samples, scenario_file, served
from support.loads import loaded

from migrator.core.scenario import LabelsAt
from migrator.records.store import read_records
from migrator.workload.live import read_live

WINDOW_S = 14


def test_accuracy_rises_inside_the_window_whose_samples_came_before_it(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos", window_s=WINDOW_S), tmp_path / "state"
    with served(path, state, "--from-first-request") as daemon:
        live = read_live(path)
        outcome = loaded(live, daemon.url, windows=1, labels=0.15, labels_at=LabelsAt.START)
        daemon.stop()
    (window,) = outcome.windows
    assert window.window == 0
    # the first version knows half of the classes that are asked for, the second one all
    assert window.whole.versions["1"]
    assert window.whole.versions["2"]
    counts = outcome.seconds["photos"]
    assert sum(counts.goodput[-4:]) >= 0.9 * sum(counts.in_time[-4:]), counts
    records = read_records(state / "live" / "small" / "records.db")
    (learned,) = [version for version in records.versions if version.number == 2]
    assert learned.adopted
    assert learned.accuracy is not None
    assert learned.accuracy > 0.9


def test_samples_that_come_in_a_window_are_learned_in_the_next(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos", policy="migrator"), tmp_path / "state"
    with served(path, state) as daemon:
        answer = daemon.upload("photos", *samples(1, 60), "lesson")
        assert answer.json() == {"id": "lesson", "stored": 60, "repeated": 0}
        came = daemon.status()["window"]
        # no answer is labelled: the estimate judges the model on the new classes
        daemon.wait_for(lambda now: now["tenants"]["photos"]["accuracy"] < 0.9, "judged")
        found = daemon.wait_for(
            lambda now: now["tenants"]["photos"]["version"] == 2, "a second version serves"
        )
        assert found["window"] > came
        daemon.stop()


def test_uploaded_samples_show_the_accuracy_under_a_policy_that_does_not_estimate(
    tmp_path: Path,
) -> None:
    path, state = scenario_file(tmp_path, "photos"), tmp_path / "state"
    with served(path, state) as daemon:
        assert daemon.status()["tenants"]["photos"]["accuracy"] > 0.9
        daemon.upload("photos", *samples(1, 60), "new-classes")
        daemon.wait_for(lambda now: now["tenants"]["photos"]["version"] == 2, "it is retrained")
        daemon.stop()
    records = read_records(state / "live" / "small" / "records.db")
    (evaluated,) = [event.words for event in records.events if event.kind == "accuracy"]
    # the first version knows none of the new classes
    assert float(evaluated.split()[2]) < 0.8, evaluated
