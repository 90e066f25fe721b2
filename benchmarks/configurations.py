"""Goodput with one and with four retraining configurations, of `migrator` and Ekya.

    MIGRATOR_DATA=FOLDER python -m benchmarks.configurations --keep FILE.jsonl [--processes N]

The paper's workloads W1 to W16 and P1 to P4, at load 0.8, with retrainings of 1, 2 and 4 times the
measured length. Ekya maximises the mean accuracy of tenants (`ekya`) or that of all requests
(`ekya-by-requests`). Finished runs are kept in FILE.jsonl, from which the command continues.

The workload gives the longest configuration. Accuracies and durations of the other three are
relative to it, as measured in docs/results/retraining_configurations.json: each window of a tenant
takes the parts of one measured window of a model that reads the same kind of input.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.configuration_times import summary
from benchmarks.machine import describe_machine
from benchmarks.results_file import code_digest, traces_digest
from benchmarks.runs import command, options, outcomes_of, setting_of, table
from migrator.advise.leads import paired_lead
from migrator.core.comparison import SeedMean
from migrator.core.scenario import Drift, OtherConfiguration, Scenario, ServedTenant
from migrator.records.outcome import RunOutcome
from migrator.reproduce.evaluation import AUTO
from migrator.reproduce.experiment import Outcomes, Setting, interval
from migrator.reproduce.reproduce import cost_s
from migrator.reproduce.sources import WorkloadSource
from migrator.simulation.compare import SimulationJob
from migrator.workload.workloads import all_workloads, workloads

if TYPE_CHECKING:
    from benchmarks.retraining_configurations_page import Judged

OURS, MEAN, BY_REQUESTS = POLICIES = ("migrator", "ekya", "ekya-by-requests")
LOAD = 0.8
LENGTHS = (1, 2, 4)
WINDOWS, SEEDS = 4, (0, 1)
TIMES = Path("docs/results/configuration_times.json")
MEASURED = Path("docs/results/retraining_configurations.json")
LONGEST = "all, 8 epochs"
IMAGES = ("efficientnet-lite2:nc-cifar-10", "efficientnet-lite1:nc-core50")
TEXTS = ("small-text:nc-20-newsgroups",)
"""Measured models and data."""
SHORTER = {
    IMAGES: ("all, 4 epochs", "all, 2 epochs", "last block, 4 epochs"),
    TEXTS: ("all, 4 epochs", "all, 2 epochs", "head, 2 epochs"),
}
"""Configurations beside the longest: half and a quarter of its epochs, and a training of fewer
layers that takes no longer than these. Half of the samples is left out, because half of the epochs
gain as much in less time."""
Figures = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A configuration in a measured window, relative to the longest one."""

    name: str
    gain: float
    """Accuracy that it gained."""
    expected: float
    """What it was expected to gain beside what the longest was: 1 if the same."""
    length: float
    """Its duration."""


MeasuredWindow = tuple[Part, ...]


@cache
def measured_windows() -> Mapping[tuple[str, ...], tuple[MeasuredWindow, ...]]:
    """Measured models and data -> their windows in which the longest configuration gained."""
    # they import torch, which the processes that simulate do not need
    from benchmarks.retraining_configurations import read_courses
    from benchmarks.retraining_configurations_page import judge

    windows: dict[str, dict[str, Judged]] = {}
    for key, course in read_courses(MEASURED).items():
        for one in judge(key, course):
            if one.gain is not None:
                windows.setdefault(one.window, {})[one.name] = one
    found: dict[tuple[str, ...], list[MeasuredWindow]] = {pairs: [] for pairs in SHORTER}
    for by_name in windows.values():
        longest = by_name[LONGEST]
        gained = longest.came - longest.before
        for pairs, shorter in SHORTER.items():
            if longest.pair in pairs:
                found[pairs].append(
                    tuple(_relative(by_name[name], longest, gained) for name in shorter)
                )
    return {pairs: tuple(measured) for pairs, measured in found.items()}


def measured_record() -> dict[str, list[list[Figures]]]:
    """The measured windows as the record has them."""
    return {
        _joined(pairs): [[vars(part) for part in window] for window in windows]
        for pairs, windows in measured_windows().items()
    }


def _joined(pairs: tuple[str, ...]) -> str:
    return " and ".join(pairs)


def _relative(one: Judged, longest: Judged, gained: float) -> Part:
    return Part(
        one.name,
        round((one.came - one.before) / gained, 4),
        round(1 + (one.expected.accuracy - longest.expected.accuracy) / gained, 4),
        round(one.duration, 4),
    )


@dataclass(frozen=True, repr=False)
class ConfiguredSource:
    """A workload with retrainings of another length, in one or several configurations."""

    source: WorkloadSource
    length: int
    several: Mapping[tuple[str, ...], tuple[MeasuredWindow, ...]] | None = field(hash=False)
    """The measured windows of the other configurations; None: there is one."""

    def __repr__(self) -> str:
        """The name among finished runs, wherever the traces are."""
        return f"{self.source.name}, x{self.length}, {'one' if self.several is None else 'four'}"

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario."""
        scenario = self.source(seed, windows)
        first = list(all_workloads()).index(self.source.name) + (seed or 0)
        tenants = (
            self._retrained(tenant, first + place) for place, tenant in enumerate(scenario.tenants)
        )
        return replace(scenario, tenants=tuple(tenants))

    def _retrained(self, tenant: ServedTenant, first: int) -> ServedTenant:
        drifts = [
            replace(drift, seconds=drift.seconds.scaled(self.length)) if drift.seconds else drift
            for drift in tenant.drifts
        ]
        if self.several is not None:
            parts = self.several[TEXTS if tenant.service.profile.model == "bert-base" else IMAGES]
            drifts = [
                with_configurations(drift, parts[(first + window) % len(parts)])
                for window, drift in enumerate(drifts)
            ]
        return replace(tenant, drifts=tuple(drifts))


def with_configurations(drift: Drift, measured: MeasuredWindow) -> Drift:
    """The window's retraining, which is the longest configuration, beside shorter ones."""
    if drift.seconds is None:
        return drift
    gain = drift.accuracy_post - drift.accuracy_pre
    others = tuple(
        OtherConfiguration(
            part.name,
            _accuracy(drift.accuracy_pre + part.gain * gain),
            drift.seconds.scaled(part.length),
            _accuracy(drift.accuracy_expected + (part.expected - 1) * gain),
        )
        for part in measured
    )
    return replace(drift, configuration=LONGEST, others=others)


def _accuracy(value: float) -> float:
    return min(1.0, max(0.0, value))


def jobs(setting: Setting) -> tuple[SimulationJob, ...]:
    """A run per length, number of configurations, workload, policy and seed; the longest first."""
    wanted = (
        _job(setting, name, length, policy, seed, several=several)
        for length in LENGTHS
        for several in (True, False)
        for name in setting.workloads
        for policy in POLICIES
        for seed in setting.seeds
    )
    return tuple(sorted(wanted, key=cost_s, reverse=True))


def _job(
    setting: Setting, name: str, length: int, policy: str, seed: int, *, several: bool
) -> SimulationJob:
    parts = measured_windows() if several else None
    windows = setting.windows(all_workloads()[name].windows, WINDOWS)
    source = ConfiguredSource(WorkloadSource(name, setting.data, load=LOAD), length, parts)
    ahead = AUTO if policy == OURS else None
    return SimulationJob(source, policy, ahead, seed=seed, windows=windows)


def rows(setting: Setting, outcomes: Outcomes) -> Iterator[Figures]:
    """What is kept of every run."""
    for job in jobs(setting):
        assert isinstance(job.source, ConfiguredSource)
        yield {
            "workload": job.source.source.name,
            "length": job.source.length,
            "configurations": 1 if job.source.several is None else 4,
            "policy": job.policy,
            "seed": job.seed,
            **_counts(outcomes[job]),
        }


def _counts(outcome: RunOutcome) -> Figures:
    tally = outcome.tally
    tenants = [tenant for window in outcome.windows for tenant in window.tenants]
    gaps = [plan.gap for window in outcome.windows for plan in window.plans]
    return {
        "received": tally.received,
        "goodput": round(tally.goodput, 1),
        "in_time": round(tally.goodput + tally.wrong, 1),
        "retrained": sum(tenant.retrained_s is not None for tenant in tenants),
        "windows": len(tenants),
        "plans": len(gaps),
        "plans_within_1_percent": sum(gap <= 0.01 for gap in gaps),
        "plan_s": round(outcome.plan_s, 2),
    }


@dataclass(frozen=True)
class Results:
    """The rows of some workloads."""

    rows: Sequence[Figures]

    def of(self, names: Sequence[str]) -> Results:
        """Those of these workloads."""
        return Results([row for row in self.rows if row["workload"] in names])

    @property
    def workloads(self) -> list[str]:
        """Their names."""
        return list(dict.fromkeys(row["workload"] for row in self.rows))

    def shares(self, length: int, configurations: int, policy: str) -> list[float]:
        """The goodput over the requests of every workload, over its seeds."""
        wanted = (length, configurations, policy)
        chosen = [
            row
            for row in self.rows
            if (row["length"], row["configurations"], row["policy"]) == wanted
        ]
        names = sorted({row["workload"] for row in chosen})
        of_names = [[row for row in chosen if row["workload"] == name] for name in names]
        return [_total(rows, "goodput") / _total(rows, "received") for rows in of_names]

    def total(self, length: int, configurations: int, policy: str, key: str) -> float:
        """The sum of a count over these runs."""
        wanted = (length, configurations, policy)
        return _total(
            [
                row
                for row in self.rows
                if (row["length"], row["configurations"], row["policy"]) == wanted
            ],
            key,
        )

    def gain(self, length: int, policy: str) -> SeedMean:
        """The relative gain of a policy by four configurations."""
        return _lead(self.shares(length, 4, policy), self.shares(length, 1, policy))

    def stronger(self, length: int, configurations: int) -> str:
        """The Ekya with most goodput."""
        return max(
            (MEAN, BY_REQUESTS),
            key=lambda policy: sum(self.shares(length, configurations, policy)),
        )

    def lead(self, length: int, configurations: int, policy: str) -> SeedMean:
        """The relative lead of migrator over an Ekya."""
        ours = self.shares(length, configurations, OURS)
        return _lead(ours, self.shares(length, configurations, policy))


def _total(chosen: Sequence[Figures], key: str) -> float:
    return float(sum(row[key] for row in chosen))


def _lead(ours: Sequence[float], theirs: Sequence[float]) -> SeedMean:
    found = paired_lead(ours, theirs)
    assert found is not None, "a policy has goodput"
    return found


def text(record: Figures) -> str:
    """The page."""
    results = Results(record["rows"])
    lines = [
        "# One and four retraining configurations",
        "",
        f"Load {LOAD:g}, {record['traces']} traces, {WINDOWS} windows of 200 s, seeds "
        f"{', '.join(map(str, record['seeds']))}. Settings were fixed before the runs.",
        "",
        "A tenant has its workload's retraining (*all, 8 epochs*), or beside it half and a quarter "
        "of the epochs, and the last block for 4 epochs (texts: the head for 2). Their gains and "
        "durations relative to the longest, and the errors of their estimates beside those of the "
        "longest, are [measured](retraining_configurations.md), of images with EfficientNet-Lite "
        "on an H200, of texts with a small network: each window of a tenant takes those of one of "
        f"{len(record['measured'][_joined(IMAGES)])} measured windows of images or "
        f"{len(record['measured'][_joined(TEXTS)])} of texts. `migrator` chooses in its plan, "
        "Ekya [by its thief scheduler](../peers.md#peer-by-peer). Intervals: 95% over workloads.",
    ]
    groups = {
        "The paper's 16 workloads": list(workloads()),
        "P1 to P4, whose models, accuracies and durations belong together": [
            name for name in all_workloads() if name not in workloads()
        ],
    }
    for title, names in groups.items():
        some = results.of(names)
        if len(some.workloads) > 0:
            lines += ["", f"## {title}", "", *_tables(some)]
    lines += ["", "## Planning time", "", *_plans(results), *_times(), ""]
    return "\n".join(lines)


def _tables(results: Results) -> Iterator[str]:
    yield f"Workloads: {', '.join(results.workloads)}."
    yield ""
    goodputs = [
        [
            f"x {length}",
            str(configurations),
            *(_percent(results.shares(length, configurations, policy)) for policy in POLICIES),
            *(interval(results.lead(length, configurations, policy)) for policy in POLICIES[1:]),
        ]
        for length in LENGTHS
        for configurations in (1, 4)
    ]
    over = [f"over `{policy}`" for policy in POLICIES[1:]]
    yield from table(
        ["retraining", "configurations", *(f"`{policy}`" for policy in POLICIES), *over], goodputs
    )
    yield ""
    gains = [
        [
            f"x {length}",
            *(interval(results.gain(length, policy)) for policy in POLICIES),
            f"{interval(results.lead(length, 1, results.stronger(length, 1)))} "
            f"(`{results.stronger(length, 1)}`)",
            f"{interval(results.lead(length, 4, results.stronger(length, 4)))} "
            f"(`{results.stronger(length, 4)}`)",
            " / ".join(_retrained(results, length, policy) for policy in POLICIES),
        ]
        for length in LENGTHS
    ]
    yield from table(
        [
            "retraining",
            *(f"gain of `{policy}` by four" for policy in POLICIES),
            "lead of `migrator` over the stronger Ekya, one",
            "four",
            "windows in which a retrained model began to serve, one to four, by policy",
        ],
        gains,
    )


def _percent(shares: Sequence[float]) -> str:
    return f"{sum(shares) / len(shares):.1%}"


def _retrained(results: Results, length: int, policy: str) -> str:
    parts = (
        results.total(length, configurations, policy, "retrained")
        / results.total(length, configurations, policy, "windows")
        for configurations in (1, 4)
    )
    return " to ".join(f"{part:.0%}" for part in parts)


def _plans(results: Results) -> Iterator[str]:
    lines = []
    for length in LENGTHS:
        for configurations in (1, 4):
            plans, near, plan_s = (
                results.total(length, configurations, OURS, key)
                for key in ("plans", "plans_within_1_percent", "plan_s")
            )
            windows = results.total(length, configurations, OURS, "windows")
            lines.append(
                [
                    f"x {length}",
                    str(configurations),
                    f"{plans:.0f}",
                    f"{near / plans:.1%}",
                    f"{plan_s / windows:.2f} s",
                ]
            )
    yield from table(
        ["retraining", "configurations", "plans", "within 1%", "planning a window and tenant"],
        lines,
    )


def _times() -> Iterator[str]:
    """What the benchmark of planning times found, if its rows are kept."""
    if TIMES.exists():
        record = json.loads(TIMES.read_text(encoding="utf-8"))
        yield ""
        yield (
            "Two tenants with retrainings that are required, in random windows (`"
            f"{record['command']} --out docs/results`, [rows]({TIMES.name})). "
            f"{summary(record['rows'])}"
        )


def commit() -> str:
    """The commit of the code; "unknown" outside of a repository."""
    asked = ("git", "rev-parse", "--short", "HEAD")
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main() -> None:
    """Run what is missing; write the rows and the page."""
    asked = options((__doc__ or "").splitlines()[0])
    asked.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    arguments = asked.parse_args()
    setting = setting_of(arguments)
    names = setting.workloads if arguments.workloads else tuple(all_workloads())
    setting = replace(setting, workloads=names, seeds=tuple(arguments.seeds))
    measured = measured_record()
    parts = hashlib.sha256(json.dumps(measured).encode()).hexdigest()[:16]
    outcomes = outcomes_of(jobs(setting), setting, arguments, configurations=parts)
    record = {
        "command": command("configurations", arguments, setting)
        + (f" --seeds {' '.join(map(str, setting.seeds))}" if setting.seeds != SEEDS else ""),
        "commit": commit(),
        "code": code_digest(),
        "traces": "generated" if setting.data is None else "real",
        "traces_digest": traces_digest(setting.data),
        "seeds": list(setting.seeds),
        "measured": measured,
        "rows": list(rows(setting, outcomes)),
        "machine": describe_machine(),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "configurations.json").write_text(
        json.dumps(record, indent=1) + "\n", encoding="utf-8"
    )
    (arguments.out / "configurations.md").write_text(text(record), encoding="utf-8")


if __name__ == "__main__":
    main()
