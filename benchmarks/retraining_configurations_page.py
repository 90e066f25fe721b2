"""The page about configurations: what they gain and take, and how well that is estimated.

`python -m benchmarks.retraining_configurations_page FILE.json ... --out docs/results`

Every configuration of every window is estimated from the trial in the row and from the retrainings
that served before, and compared with what came. Nothing is trained.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.retraining_configurations import CONFIGURATIONS, LONGEST, read_courses
from migrator.core.training import STEP_TIMES
from migrator.learn.estimation import AccuracyEstimate, Past, TrialTraining, estimates_from
from migrator.learn.retraining import EPOCHS, FIRST_STEPS, RetrainingSettings

Json = dict[str, Any]
_LEAST_GAIN = 0.02
"""Gain of the longest configuration from which others are compared with it."""


@dataclass(frozen=True)
class Duration:
    """Seconds of a retraining with these settings on this number of samples.

    It has a fixed part (reading samples, choosing kernels, evaluating, saving) and its steps. These
    follow from epochs and samples; a step takes less time where layers are frozen.
    """

    settings: RetrainingSettings
    samples: int
    """Of the window, replayed ones included, of which the configuration may train on a part."""
    seconds: float
    fixed_s: float
    """Of these: what does not grow with the steps."""

    def of(self, settings: RetrainingSettings, samples: int) -> Duration:
        """The duration with other settings."""
        if (settings, samples) == (self.settings, self.samples):
            return self
        known = STEP_TIMES[self.settings.layers] * self._steps(self.settings, self.samples)
        wanted = STEP_TIMES[settings.layers] * self._steps(settings, samples)
        steps_s = (self.seconds - self.fixed_s) * wanted / known
        return Duration(settings, samples, self.fixed_s + steps_s, self.fixed_s)

    @staticmethod
    def _steps(settings: RetrainingSettings, samples: int) -> int:
        return settings.steps(round(settings.part * samples))


@dataclass(frozen=True)
class Judged:
    """A configuration in a window: estimates and what came."""

    pair: str
    window: str
    """The course and its window."""
    name: str
    before: float
    expected: AccuracyEstimate
    came: float
    gain: float | None
    """Relative to the longest configuration; None if that gained too little."""
    duration: float
    """Relative to the longest configuration."""
    duration_expected: float | None
    """Estimated over measured duration; None if the training ended early."""
    step: float
    """The time of a step relative to one of the longest configuration."""

    @property
    def error(self) -> float:
        """Estimated minus actual accuracy."""
        return self.expected.accuracy - self.came


def judge(key: str, course: Json) -> Iterator[Judged]:
    """Every configuration of every window, estimated from what was known before it."""
    past: list[Past] = []
    for row in course["rows"]:
        before, kept = row["before"], row["trials"]["every"]
        trial = TrialTraining(tuple(kept["curve"]), kept["head_gain"], row["samples"])
        settings = [CONFIGURATIONS[name] for name in row["results"]]
        expected = estimates_from(trial, before, row["new_part"], settings, past)
        longest, longest_came = _duration(course, row, LONGEST), row["results"][LONGEST]["accuracy"]
        for (name, result), estimate in zip(row["results"].items(), expected, strict=True):
            came, duration = max(before, result["accuracy"]), _duration(course, row, name)
            if name == row["serves"]:
                served = estimate.past(came, result["curve"])
            if not row["window"]:
                continue
            whole = result["steps"] == estimate.settings.steps(result["samples"])
            gained = longest_came - before
            yield Judged(
                key.rpartition(":")[0],
                f"{key} {row['window']}",
                name,
                before,
                estimate,
                came,
                (came - before) / gained if gained > _LEAST_GAIN else None,
                duration.seconds / longest.seconds,
                longest.of(estimate.settings, row["samples"]).seconds / duration.seconds
                if whole
                else None,
                _step_s(duration, result) / _step_s(longest, row["results"][LONGEST]),
            )
        past.append(served)


def _duration(course: Json, row: Json, name: str) -> Duration:
    result, seconds = row["results"][name], row["results"][name][_clock(course)]
    steps_s = result["parts_s"][EPOCHS] * result["steps"] / (result["steps"] - FIRST_STEPS)
    fixed = max(0.0, 1 - steps_s / result["seconds"])
    return Duration(CONFIGURATIONS[name], row["samples"], seconds, fixed * seconds)


def _step_s(duration: Duration, result: Json) -> float:
    return (duration.seconds - duration.fixed_s) / float(result["steps"])


def _clock(course: Json) -> str:
    """CPU seconds where a CPU was measured: it was busy with other work as well."""
    return "cpu_s" if course["board"].startswith("CPU") else "seconds"


def page(courses: dict[str, Json], files: Sequence[str]) -> str:
    """The page of the docs."""
    every = [one for key, course in courses.items() for one in judge(key, course)]
    pairs = list(dict.fromkeys(one.pair for one in every))
    lines = [
        "# Configurations of a retraining",
        "",
        "In each window of a benchmark the serving model is retrained once with every "
        "configuration, and one of the results, drawn from the seed, serves in the next window. "
        "*Gain* and *time*: relative to all layers, 8 epochs (means over windows; time with the "
        "fixed part). *Off*: estimated minus actual accuracy in points, median and largest of the "
        "absolute values. Each estimate knows only the trial in its window and the retrainings "
        "that served before. Rows: " + ", ".join(f"[{name}]({name})" for name in files) + ".",
        "",
        *_measured_on(courses),
        "",
        "```",
        "python -m benchmarks.retraining_configurations --out FILE.json [--pairs MODEL:BENCHMARK "
        "...] [--samples N] [--windows N]",
        f"python -m benchmarks.retraining_configurations_page {' '.join(files)} --out docs/results",
        "```",
    ]
    for pair in pairs:
        ones = [one for one in every if one.pair == pair]
        lines += ["", f"## {pair.replace(':', ', ')}", "", *_table(ones)]
    lines += ["", "## Estimates", "", *_estimates(every, courses)]
    return "\n".join(lines) + "\n"


def _measured_on(courses: dict[str, Json]) -> Iterator[str]:
    """A line for all courses on one machine."""
    machines: dict[str, list[str]] = {}
    for key, course in courses.items():
        pair, _, seed = key.rpartition(":")
        samples = course["samples_per_class"]
        machine = (
            f"{course['board']}, torch {course['torch']}, {course['precision']}, "
            f"{course['measured']}, {'all' if samples is None else samples} samples per class"
        )
        note = f"; {course['note']}" if "note" in course else ""
        windows = len(course["rows"]) - 1
        machines.setdefault(machine, []).append(
            f"{pair.replace(':', ', ')} (seed {seed}, {windows} windows{note})"
        )
    for machine, measured in machines.items():
        yield f"- {machine}: {', '.join(measured)}"


def _table(ones: Sequence[Judged]) -> Iterator[str]:
    yield "| configuration | gain | time | a step | off | at most |"
    yield "|---|---|---|---|---|---|"
    for name in dict.fromkeys(one.name for one in ones):
        named = [one for one in ones if one.name == name]
        gains = [one.gain for one in named if one.gain is not None]
        errors = [100 * abs(one.error) for one in named]
        yield (
            f"| {name} | {np.mean(gains) if gains else 0:.0%} "
            f"| {np.mean([one.duration for one in named]):.0%} "
            f"| {np.median([one.step for one in named]):.0%} "
            f"| {np.median(errors):.1f} | {max(errors):.1f} |"
        )


def _estimates(every: Sequence[Judged], courses: dict[str, Json]) -> Iterator[str]:
    errors = [100 * one.error for one in every]
    longest = [100 * abs(one.error) for one in every if one.name == LONGEST]
    within = np.mean([abs(one.error) <= one.expected.spread for one in every])
    yield (
        f"{len(every)} accuracies are {np.median(np.abs(errors)):.1f} points off in the median, "
        f"{max(map(abs, errors)):.1f} at most, {np.mean(errors):+.1f} in the mean; those of the "
        f"longest configuration alone {np.median(longest):.1f} in the median. "
        f"{within:.0%} are within their spread."
    )
    yield ""
    others = [one for one in every if one.name != LONGEST]
    ratios = [abs(one.duration_expected - 1) for one in others if one.duration_expected is not None]
    yield (
        f"Durations estimated from that of the longest configuration are {np.median(ratios):.0%} "
        f"off in the median, {max(ratios):.0%} at most."
    )
    yield ""
    costs = {}
    for key, course in courses.items():
        trials = [row["trials"] for row in course["rows"][1:]]
        costs[key] = sum(trial["every"][_clock(course)] for trial in trials) / sum(
            trial["longest"][_clock(course)] for trial in trials
        )
    yield (
        "The trial for all configurations took, in the order above, "
        + ", ".join(f"{cost:.2f}" for cost in costs.values())
        + " times that for one."
    )


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    courses: dict[str, Json] = {}
    for file in asked.files:
        courses |= {key: one for key, one in read_courses(file).items() if len(one["rows"]) > 1}
    content = page(courses, [file.name for file in asked.files])
    (asked.out / "retraining_configurations.md").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
