"""Labelled samples that are uploaded before a window are learned in it."""

from __future__ import annotations

from pathlib import Path

from support.live_daemon import Served, samples, scenario_file, served
from support.waiting import until

from migrator.records.store import read_records


def right_answers(daemon: Served) -> int:
    """Of 20 samples of classes that the first version does not know."""
    pictures, labels = samples(1, 20)
    answers = [daemon.infer("photos", picture, "").json()["outputs"] for picture in pictures]
    given = [next(output["data"] for output in o if output["name"] == "label") for o in answers]
    return sum(numbers == [label] for numbers, label in zip(given, labels, strict=True))


def test_accuracy_rises_inside_the_window_whose_samples_came_before_it(tmp_path: Path) -> None:
    """Under a policy that does not estimate; the tenant has one configuration, without a name."""
    path, state = scenario_file(tmp_path, "photos", window_s=600), tmp_path / "state"
    with served(path, state, "--from-first-request") as daemon:
        assert daemon.status()["tenants"]["photos"]["accuracy"] > 0.9
        daemon.upload("photos", *samples(1, 60), "lesson")
        until(lambda: "on new labels, 1.000 before" in daemon.said(), "the model is evaluated")
        assert right_answers(daemon) < 10  # the first request begins the window
        now = daemon.wait_for(
            lambda now: now["tenants"]["photos"]["version"] == 2, "a second version serves"
        )
        assert (now["window"], now["tenants"]["photos"]["configuration"]) == (0, "")
        assert right_answers(daemon) > 10
        assert daemon.stop() == 0, daemon.said()
    records = read_records(state / "live" / "small" / "records.db")
    (learned,) = (version for version in records.versions if version.number == 2)
    assert learned.adopted
    (evaluated,) = (event.words for event in records.events if event.kind == "accuracy")
    assert float(evaluated.split()[2]) < 0.8, "the first version knows none of the new classes"
