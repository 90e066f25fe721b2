"""Configurations of a retraining: rows of a small course, and what is made of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.retraining_configurations import (
    CONFIGURATIONS,
    LONGEST,
    Course,
    Json,
    provenance,
    read_courses,
    write_courses,
)
from benchmarks.retraining_configurations_page import judge, page
from migrator.core.training import STEP_TIMES

COURSE = Course("small-cnn", "nc-synthetic", 0, False, 40, 8, 2, "cpu", None)


@pytest.fixture(scope="module")
def course() -> Json:
    return {
        **provenance("cpu"),
        "samples_per_class": 40,
        "rows": [*COURSE.windows_measured(math.inf)],
    }


def test_every_configuration_is_measured_in_every_window(course: Json) -> None:
    first, *others = course["rows"]
    assert [*first["results"]] == [first["serves"]] == [LONGEST]
    assert [row["window"] for row in others] == [1, 2]
    for row in others:
        assert [*row["results"]] == [*CONFIGURATIONS]
        assert row["serves"] in CONFIGURATIONS
        for name, result in row["results"].items():
            settings = CONFIGURATIONS[name]
            assert result["steps"] <= settings.steps(result["samples"])
            assert result["samples"] == pytest.approx(settings.part * row["samples"], rel=0.1)
        assert row["trials"]["longest"]["curve"] == row["trials"]["every"]["curve"]


def test_rows_survive_the_file_and_are_judged_the_same(course: Json, tmp_path: Path) -> None:
    courses = {COURSE.key: course}
    write_courses(tmp_path / "rows.json", courses)
    again = read_courses(tmp_path / "rows.json")
    assert again == json.loads(json.dumps(courses))
    assert read_courses(tmp_path / "none.json") == {}
    ones = [*judge(COURSE.key, again[COURSE.key])]
    assert len(ones) == 2 * len(CONFIGURATIONS)
    assert all(0 <= one.expected.accuracy <= 1 and abs(one.error) < 0.5 for one in ones)
    written = page(again, ["rows.json"])
    assert written == page(courses, ["rows.json"])
    assert f"{len(ones)} accuracies are" in written
    assert "## small-cnn, nc-synthetic" in written


def test_durations_follow_from_the_longest_one(course: Json) -> None:
    rows = json.loads(json.dumps(course["rows"]))
    for row in rows:
        for name, result in row["results"].items():
            settings = CONFIGURATIONS[name]
            steps = result["steps"] = settings.steps(result["samples"])
            time = 0.4 * STEP_TIMES[settings.layers]
            result["parts_s"] = {"first_s": 3 * time, "epochs_s": (steps - 3) * time}
            result["seconds"] = result["cpu_s"] = 2 + time * steps
    for one in judge(COURSE.key, {**course, "rows": rows}):
        assert one.step == pytest.approx(STEP_TIMES[CONFIGURATIONS[one.name].layers])
        assert one.duration_expected == pytest.approx(1, abs=0.02)
        assert one.duration <= 1
