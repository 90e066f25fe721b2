"""The evaluation's figures for the docs: python -m benchmarks.evaluation [--out DIR].

Runs `migrator reproduce all`, or continues it, and writes evaluation.json, evaluation.md and
evaluation.png, so that no figure in the docs is typed in. `--figures FILE` takes what
`migrator reproduce all --json` printed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.paper_figures import gain
from migrator.report.page import Axis, Picture
from migrator.report.png import write
from migrator.reproduce.evaluation import WINDOWS
from migrator.reproduce.experiment import bars

Json = dict[str, Any]
DRAWN = ("migrator", "ekya", "astraea", "paris-reconfiguring", "oracle")
_MEASURES = ("SLO attainment", "accuracy", "accuracy over received")

_LIMITS = (
    "Peers get what a real GPU supports ([peers](../peers.md)). `paris-reconfiguring` is PARIS as "
    "the paper runs it, `paris` its static form."
)


def _windows(figures: Json) -> str:
    """The option that limits the windows of every run, if there was one."""
    most = figures.get("most_windows")
    return "" if most is None else f" --windows {most}"


def _length(figures: Json) -> int:
    """Windows of a run."""
    return int(figures.get("most_windows") or WINDOWS)


def text(figures: Json) -> str:
    """The page."""
    of = figures["experiments"]
    goodput, slo, accuracy = of["goodput"], of["slo-accuracy"]["slo_attainment"], of["slo-accuracy"]
    lines = [
        "# The paper's evaluation, redone",
        "",
        _LIMITS,
        "",
        f"`MIGRATOR_DATA=FOLDER python -m benchmarks.evaluation{_windows(figures)} --out "
        "docs/results` runs `migrator reproduce all`. "
        f"Traces: {figures['traces']}; seeds: {', '.join(map(str, figures['seeds']))}; forecaster: "
        f"`{goodput['forecaster']}`. [All figures and tables of the paper](paper-figures.md), ours "
        "beside them.",
        "",
        "On real traces every workload begins at another of 16 places spread evenly over them, and "
        f"at another window of its data set; runs have {_length(figures)} windows "
        "where no other number is given, and the load is that of the run. ± is a 95% confidence "
        "interval over the workloads, each of which is one pair of models at one place (Student's "
        "t on the pairs). `migrator` retrains where that pays, `migrator-paper` every tenant in "
        "every window, as the paper does.",
        "",
        "![Goodput of the 16 workloads](evaluation.png)",
        "",
        "Load 0.6, accuracies measured from random weights. Accuracy is the correct part of what "
        "was answered in time and, as the paper defines it, of what was received.",
        "",
        "| policy | goodput | SLO attainment | accuracy | of received | migrator's gain | "
        "the paper's |",
        "|---|---|---|---|---|---|---|",
        *_ranking(goodput),
        "",
        f"migrator reaches {100 * goodput['share_of_oracle']:.1f}% of the oracle. Below are "
        "the same workloads with the accuracies of published weights (EfficientNet-Lite0 and "
        "Lite2), which the paper's models begin with, at load "
        f"{of['high-load']['load']:g}. No planner can have "
        f"more than the ceiling, {100 * of['high-load']['ceiling']:.1f}%.",
        "",
        "| policy | goodput | migrator's gain | the paper's | the ceiling's gain |",
        "|---|---|---|---|---|",
        *_high_load(of["high-load"]),
        "",
        "Gains by measure and with batches of 4. [When it pays](../when-it-pays.md) has a map of "
        "more conditions.",
        "",
        "| | ekya | astraea | paris-reconfiguring |",
        "|---|---|---|---|",
        _gains("SLO attainment", slo["gains"]),
        _gains("accuracy", accuracy["accuracy"]["gains"]),
        _gains("goodput, batch 4", of["batch-4"]["gains"]),
        "",
        "Slots of other lengths under `migrator-paper` on W1 to W8. Planning is wall time, on two "
        "cores shared with other work.",
        "",
        "| slot (s) | goodput on the forecast | on true arrivals | planning per window (s) |",
        "|---|---|---|---|",
    ]
    sweep = of["slot-length"]
    for slot_s, point in sweep["migrator-paper"].items():
        truth = sweep["migrator-paper-truth"][slot_s]["goodput"]
        shares = f"{point['goodput']:.1%} | {truth:.1%}"
        lines.append(f"| {slot_s} | {shares} | {point['plan_s_per_window']:.2f} |")
    return "\n".join([*lines, *gap_lines(figures["plans"]), ""])


def _ranking(of: Json) -> Iterator[str]:
    """A row per policy, highest goodput first."""
    for name, mean in sorted(of["average"].items(), key=lambda average: -average[1]):
        measured = (of["measures"][measure][name] for measure in _MEASURES)
        yield _row(
            name, f"{mean:.1%}", *(f"{share:.1%}" for share in measured), *_compared(of, name)
        )


def _high_load(of: Json) -> Iterator[str]:
    for name, mean in sorted(of["average"].items(), key=lambda average: -average[1]):
        yield _row(name, f"{mean:.1%}", *_compared(of, name), f"{of['ceiling'] / mean - 1:+.1%}")


def _compared(of: Json, name: str) -> tuple[str, str]:
    """migrator's gain over a policy, and the paper's."""
    paper = of["paper_gains"].get(name)
    gain_text = gain(of, name) if name in of["gains"] else ""
    return gain_text, "" if paper is None else f"{paper:+.0%}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def gap_lines(plans: list[Json]) -> list[str]:
    """The distribution of the certified gaps, a row per charge."""
    lines = [
        "",
        "Certified gaps of all plans of these runs: how far the best plan could at most be above "
        "the one followed, relative to the latter. Limit 1% of the window, counted as work.",
        "",
        "| charge | plans | median | 90% | 99% | largest | proven optimal |",
        "|---|---|---|---|---|---|---|",
    ]
    by_charge: dict[str, list[float]] = {}
    for run in plans:
        run_gaps = (math.inf if gap is None else gap for gap in run["gaps"])
        by_charge.setdefault(run["charge"], []).extend(run_gaps)
    for charge, gaps in sorted(by_charge.items()):
        ordered = sorted(gaps)
        quantiles = (ordered[math.ceil(part * len(ordered)) - 1] for part in (0.5, 0.9, 0.99, 1.0))
        proven = ordered.count(0.0) / len(ordered)
        quantile_cells = (f"{gap:.3%}" for gap in quantiles)
        lines.append(_row(charge, f"{len(ordered):,}", *quantile_cells, f"{proven:.1%}"))
    return lines


def _gains(what: str, gains: Json) -> str:
    return f"| {what} | " + " | ".join(f"{gains[n]:+.1%}" for n in DRAWN[1:4]) + " |"


def draw(figures: Json, path: Path) -> None:
    """Goodput per workload and policy."""
    workloads = figures["experiments"]["goodput"]["workloads"]
    shares = {policy: [workload[policy] for workload in workloads.values()] for policy in DRAWN}
    y = Axis("goodput over received", share=True)
    chart = bars("Goodput of the workloads", workloads, shares, Axis("workload"), y, DRAWN)
    write(Picture("", "", (chart,)), path)


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--figures", type=Path, help="what `migrator reproduce all --json` printed; nothing runs")
    add("--work", type=Path, default=Path("out"), help="where finished runs are kept")
    add("--windows", help="most windows of a run")
    add("--processes", help="runs in parallel")
    add("--out", type=Path, default=Path("out"), help="folder")
    options = parser.parse_args()
    if options.figures is None:
        command = [sys.executable, "-m", "migrator", "reproduce", "all", "--json"]
        command += ["--out", str(options.work / "evaluation.html")]
        command += ["--results", str(options.work / "evaluation.jsonl")]
        for name in ("windows", "processes"):
            value = getattr(options, name)
            command += [] if value is None else [f"--{name}", value]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        parsed_json = json.loads(done.stdout.splitlines()[-1])
    else:
        parsed_json = json.loads(options.figures.read_text(encoding="utf-8"))
    (options.out / "evaluation.json").write_text(
        json.dumps(parsed_json, indent=1) + "\n", encoding="utf-8"
    )
    (options.out / "evaluation.md").write_text(text(parsed_json), encoding="utf-8")
    draw(parsed_json, options.out / "evaluation.png")


if __name__ == "__main__":
    main()
