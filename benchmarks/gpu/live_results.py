"""What the live comparison came to: tables, simulation beside it, and the page.

`benchmarks/gpu/live.py` calls it; it needs no GPU. Every run is simulated twice:

- ahead: arrivals and profile of the scenario, accuracies and durations as the runs of the *other*
  policies measured them, of similar ones first; nothing of the run itself but its requests;
- again: with what the run itself measured (`measured_run.py`). What remains is the simulator's.

The difference between both says how much durations and accuracies of this run differed.
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.measured_run import LiveRun, measured_run
from benchmarks.recorded_batches import BATCHES
from migrator.core.catalogue import board
from migrator.core.evidence import CLOSE
from migrator.core.fairness import Fairness, fairness
from migrator.core.outcome import Tally
from migrator.forecast.selection import forecaster
from migrator.policies.registry import policy
from migrator.records.batches import read_batches
from migrator.records.outcome import RunOutcome
from migrator.records.rows import RunRecords
from migrator.records.runs import recorded_run
from migrator.records.store import read_records
from migrator.report.html_page import write_page
from migrator.report.page import Axis, Bars, Page, Section, Series, Table
from migrator.report.paint import (
    DROPPED,
    FAILED,
    GOOD,
    LATE,
    UNANSWERED,
    WRONG,
    Paint,
)
from migrator.report.run_charts import RETRAINING_PARTS
from migrator.report.run_page import run_page
from migrator.simulation.run import MeasuredRun
from migrator.simulation.run import run as simulated_run
from migrator.workload.live import LiveScenario, read_live

OURS = "migrator"
ALL = "all"
NEAR = (0.9, 1.1)
"""Taken over planned durations that count as planned well."""
_LOSSES = ("wrong", "late", "dropped", "refused", "failed")


@dataclass(frozen=True)
class Finished:
    """A run that ended as it should."""

    policy: str
    seed: int
    live: LiveScenario
    measured: LiveRun


@dataclass(frozen=True)
class Row:
    """One tenant, or all, of one run."""

    policy: str
    seed: int
    tenant: str
    sent: int
    goodput: int
    in_time: int
    accuracy: float
    wrong: int
    late: int
    dropped: int
    refused: int
    failed: int
    p50_ms: float | None
    p99_ms: float | None
    ahead: float | None
    """Goodput simulated before the run."""
    again: float
    """Goodput simulated with what the run measured."""

    @property
    def share(self) -> float:
        """Goodput of sent."""
        return self.goodput / max(1, self.sent)


@dataclass(frozen=True)
class Retraining:
    """One retraining of one run."""

    policy: str
    seed: int
    window: int
    """Counted from the first of its run."""
    tenant: str
    planned_s: float
    taken_s: float
    parts_s: Mapping[str, float]

    @property
    def ratio(self) -> float:
        """Taken over planned."""
        return self.taken_s / self.planned_s if self.planned_s else math.inf


@dataclass(frozen=True)
class Reported:
    """What the daemon reports of a tenant in a window, beside what its clients counted."""

    policy: str
    seed: int
    window: int
    """Counted from the first of its run."""
    tenant: str
    in_time: int
    in_time_counted: int
    goodput: float | None
    """None: the daemon says that it is unknown."""
    goodput_counted: int
    accuracy: float | None
    """That plans rest on, at the end of the window."""
    evidence: str
    accuracy_counted: float

    @property
    def is_true(self) -> bool:
        """Whether the goodput is unknown or within 2%."""
        counted = self.goodput_counted
        return self.goodput is None or abs(self.goodput - counted) <= CLOSE * counted


@dataclass(frozen=True)
class Starts:
    """The starts of a tenant's workers in one run."""

    policy: str
    seed: int
    tenant: str
    count: int
    serves_s: float
    """Median seconds from the instance to the first answer."""
    longest_s: float
    hidden: float
    """Part of the cold overhead for which no planned instance was missing."""


def write_results(folder: Path) -> Iterator[str]:
    """Write live.json and live.html; the tables as text."""
    runs = finished_runs(folder)
    if not runs:
        raise SystemExit(f"{folder}: no run has ended yet; start one without --page")
    rows = [row for run in runs for row in rows_of(run, runs)]
    retrainings = [row for run in runs for row in retrainings_of(run)]
    starts = [row for run in runs for row in starts_of(run)]
    reported = [row for run in runs for row in reported_of(run)]
    record = {
        "machine": describe_machine(),
        "rows": [asdict(row) for row in rows],
        "leads": leads(rows),
        "fairness": [
            {"policy": name, "seed": seed, **asdict(found)}
            for (name, seed), found in fairness_of(rows).items()
        ],
        "retrainings": [asdict(retraining) for retraining in retrainings],
        "starts": [asdict(start) for start in starts],
        "reported": [asdict(row) for row in reported],
    }
    (folder / "live.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    write_page(page(runs, rows, retrainings, starts, reported), folder / "live.html")
    for table in (*tables(rows, retrainings, starts), reported_table(reported)):
        yield from (f"\n{table.caption}", *_markdown(table))
    yield f"\nwritten: {folder / 'live.html'} and live.json"


def finished_runs(folder: Path) -> list[Finished]:
    """Every run with a marker and one way to retrain, by seed and policy."""
    finisheds = []
    for marker in sorted(folder.glob("runs/seed*/*/run.json")):
        about = json.loads(marker.read_text(encoding="utf-8"))
        if about.get("configurations"):
            continue
        live = read_live(folder / "scenario" / f"seed{about['seed']}" / "live.yaml")
        scenario = replace(live.scenario, windows=about["windows"])
        sent = json.loads(marker.with_name("load.json").read_text(encoding="utf-8"))
        batches = marker.with_name(BATCHES)
        ran = tuple(read_batches(batches)) if batches.is_file() else ()
        measured = LiveRun(_records(marker.parent), sent, ran)
        live = replace(live, scenario=scenario)
        finisheds.append(Finished(about["policy"], about["seed"], live, measured))
    return finisheds


def _records(folder: Path) -> RunRecords:
    """Read from a copy: opening a database may write beside it."""
    with tempfile.TemporaryDirectory() as temporary:
        for path in folder.glob("records.db*"):
            shutil.copy(path, temporary)
        return read_records(Path(temporary, "records.db"))


def rows_of(run: Finished, runs: Iterable[Finished]) -> Iterator[Row]:
    """As clients saw it, and simulated."""
    others = _others(run, runs)
    again = _simulated(run, measured_run(run.live, policy(run.policy), run.measured))
    ahead = _simulated(run, _known_ahead(run, others)) if others else None
    sent = run.measured.sent
    for tenant, sent_of in (*sent["tenants"].items(), (ALL, sent)):
        kept = ("sent", "goodput", "in_time", "accuracy", "wrong", "late", "dropped")
        counts: dict[str, Any] = {name: sent_of[name] for name in kept}
        ms = {name: 1e3 * value for name, value in (sent_of["latencies"] or {}).items()}
        yield Row(
            run.policy,
            run.seed,
            tenant,
            **counts,
            refused=sum(sent_of["refused"].values()),
            failed=sum(sent_of["failed"].values()),
            p50_ms=ms.get("p50_s"),
            p99_ms=ms.get("p99_s"),
            ahead=None if ahead is None else _goodput(ahead, tenant),
            again=_goodput(again, tenant),
        )


def _others(run: Finished, runs: Iterable[Finished]) -> list[LiveRun]:
    """The other policies' runs: first those that estimate accuracies if this one does, then those
    with most retrainings, with the same seed, and with the same kind of instances."""
    own = policy(run.policy)
    others = [finished for finished in runs if finished.policy != run.policy]

    def distance(other: Finished) -> tuple[bool, int, bool, bool]:
        made = sum(len(other.measured.trainings(tenant.name)) for tenant in other.live.tenants)
        theirs = policy(other.policy)
        unlike = theirs.estimates != own.estimates, theirs.sharing is not own.sharing
        return unlike[0], -made, other.seed != run.seed, unlike[1]

    return [finished.measured for finished in sorted(others, key=distance)]


def _known_ahead(run: Finished, others: Sequence[LiveRun]) -> MeasuredRun:
    chosen = policy(run.policy)
    return measured_run(run.live, chosen, others[0], others[1:], arrivals=run.measured)


def _simulated(run: Finished, measured: MeasuredRun) -> RunOutcome:
    """The run in virtual time."""
    ahead = forecaster(run.measured.records.windows[0].forecaster)
    scenario, chosen = run.live.scenario, policy(run.policy)
    return simulated_run(scenario, chosen, ahead, even_start=True, measured=measured)


def _goodput(outcome: RunOutcome, tenant: str) -> float:
    tally = outcome.tally if tenant == ALL else outcome.tenants[tenant]
    return round(tally.goodput, 1)


def retrainings_of(run: Finished) -> Iterator[Retraining]:
    """Every retraining whose duration is known."""
    first = run.measured.records.windows[0].window
    for retraining in run.measured.records.retrainings:
        if retraining.planned_s is not None and retraining.taken_s is not None:
            yield Retraining(
                run.policy,
                run.seed,
                retraining.window - first,
                retraining.tenant,
                retraining.planned_s,
                retraining.taken_s,
                retraining.parts_s,
            )


def reported_of(run: Finished) -> Iterator[Reported]:
    """Every window and tenant of which both say something."""
    for number, window in enumerate(run.measured.sent["windows"]):
        for tenant, counted in window["tenants"].items():
            row = next(
                (
                    row
                    for row in run.measured.records.tenant_windows
                    if (row.window, row.tenant) == (window["window"], tenant)
                ),
                None,
            )
            if row is not None:
                yield Reported(
                    *(run.policy, run.seed, number, tenant, row.in_time, counted["in_time"]),
                    *(row.goodput, counted["goodput"], row.accuracy_after, row.evidence),
                    counted["accuracy"],
                )


def starts_of(run: Finished) -> Iterator[Starts]:
    """Starts after the first window began, of each tenant and of all."""
    everything: list[tuple[Mapping[str, float], float]] = []
    for tenant in run.live.tenants:
        cold_s = tenant.service.profile.overhead.total_s(mig=False, prepared=False)
        found = [
            (unit.parts_s, unit.parts_s["create_s"] + cold_s)
            for unit in run.measured.records.units
            if unit.tenant == tenant.name and unit.parts_s and unit.from_s >= run.measured.began_s
        ]
        everything += found
        if found:
            yield _starts(run, tenant.name, found)
    if everything:
        yield _starts(run, ALL, everything)


def _starts(
    run: Finished, tenant: str, found: Sequence[tuple[Mapping[str, float], float]]
) -> Starts:
    """`found`: parts of every start, and the seconds of a cold one."""
    late_s = sum(parts.get("late_s", 0.0) for parts, _ in found)
    return Starts(
        run.policy,
        run.seed,
        tenant,
        len(found),
        round(statistics.median(parts["warm_s"] for parts, _ in found), 3),
        round(max(parts["create_s"] + parts["warm_s"] for parts, _ in found), 3),
        round(1 - late_s / sum(cold_s for _, cold_s in found), 4),
    )


def leads(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Per other policy: by how much ours is ahead, in the mean over the seeds and in each."""
    shares = {(row.policy, row.seed): row.share for row in rows if row.tenant == ALL}
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(other for other, _ in shares if other != OURS):
        by_seed = {
            seed: shares[OURS, seed] / share - 1
            for (other, seed), share in shares.items()
            if other == name and (OURS, seed) in shares and share
        }
        if by_seed:
            found[name] = {"mean": statistics.mean(by_seed.values()), "by_seed": by_seed}
    return found


def fairness_of(rows: Iterable[Row]) -> dict[tuple[str, int], Fairness]:
    """Per policy and seed: how even the tenants are, as clients saw it."""
    runs: dict[tuple[str, int], dict[str, Tally]] = {}
    for row in rows:
        if row.tenant != ALL:
            tallies = runs.setdefault((row.policy, row.seed), {})
            tallies[row.tenant] = Tally(row.sent, goodput=row.goodput)
    return {run: fairness(tallies) for run, tallies in runs.items()}


def planned_well(retrainings: Iterable[Retraining]) -> tuple[int, int]:
    """Of the retrainings after the first window: how many took what was planned, of how many."""
    later = [retraining for retraining in retrainings if retraining.window > 0]
    return sum(NEAR[0] <= event.ratio <= NEAR[1] for event in later), len(later)


# Tables and the page


def tables(
    rows: Sequence[Row], retrainings: Sequence[Retraining], starts: Sequence[Starts]
) -> tuple[Table, ...]:
    """All tables of the page."""
    made = [_result_table(rows), _leads_table(rows), _simulation_table(rows), _even_table(rows)]
    if retrainings:
        made.append(_retrainings_table(retrainings))
    if starts:
        made.append(_starts_table(starts))
    return tuple(made)


def _result_table(rows: Sequence[Row]) -> Table:
    headers = ("policy", "seed", "tenant", "sent", "goodput", "of sent", "in time", "accuracy")
    cells = [
        (
            row.policy,
            str(row.seed),
            row.tenant,
            f"{row.sent:,}",
            f"{row.goodput:,}",
            f"{row.share:.1%}",
            f"{row.in_time / max(1, row.sent):.1%}",
            f"{row.accuracy:.1%}",
            *(f"{getattr(row, name):,}" for name in _LOSSES),
            "-" if row.p50_ms is None else f"{row.p50_ms:.1f} / {row.p99_ms:.1f}",
        )
        for row in rows
    ]
    return _table("As clients saw it", (*headers, *_LOSSES, "p50 / p99 ms"), cells, words=3)


def _leads_table(rows: Sequence[Row]) -> Table:
    cells = [
        (
            name,
            f"{lead['mean']:+.1%}",
            ", ".join(f"{lead_of_seed:+.1%}" for lead_of_seed in lead["by_seed"].values()),
        )
        for name, lead in leads(rows).items()
    ]
    headers = ("policy", f"goodput of {OURS} over its own, mean", "by seed")
    return _table(f"How far {OURS} is ahead", headers, cells, words=1)


def _even_table(rows: Sequence[Row]) -> Table:
    cells = [
        (
            *(name, str(seed), str(found.worst_tenant)),
            *(f"{found.worst_share:.1%}", f"{found.jain_index:.3f}"),
        )
        for (name, seed), found in fairness_of(rows).items()
    ]
    headers = ("policy", "seed", "worst tenant", "its goodput of sent", "Jain's index")
    return _table("How even the tenants are, as clients saw it", headers, cells, words=3)


def _simulation_table(rows: Sequence[Row]) -> Table:
    cells = [
        (
            row.policy,
            str(row.seed),
            row.tenant,
            f"{row.goodput:,}",
            "-" if row.ahead is None else f"{row.ahead:,.0f}",
            _difference(row.ahead, row.goodput),
            f"{row.again:,.0f}",
            _difference(row.again, row.goodput),
        )
        for row in rows
    ]
    headers = ("policy", "seed", "tenant", "goodput live", "simulated ahead", "difference")
    more = ("simulated again", "difference")
    return _table("Live and simulated", (*headers, *more), cells, words=3)


def _difference(simulated: float | None, live: float) -> str:
    return "-" if simulated is None or not live else f"{simulated / live - 1:+.1%}"


def _retrainings_table(retrainings: Sequence[Retraining]) -> Table:
    headers = ("policy", "seed", "window", "tenant", "planned s", "taken s", "taken / planned")
    cells = [
        (
            retraining.policy,
            str(retraining.seed),
            str(retraining.window),
            retraining.tenant,
            f"{retraining.planned_s:.1f}",
            f"{retraining.taken_s:.1f}",
            f"{retraining.ratio:.2f}",
            *(f"{retraining.parts_s.get(part, 0.0):.2f}" for part in RETRAINING_PARTS),
        )
        for retraining in retrainings
    ]
    names = (*headers, *RETRAINING_PARTS.values())
    return _table("Retrainings, planned and taken, with their parts in seconds", names, cells, 4)


def reported_table(reported: Sequence[Reported]) -> Table:
    """Reported against counted; the caption says how many are not within 2%."""
    headers = ("policy", "seed", "window", "tenant", "in time", "counted", "difference")
    cells = [
        (
            *(row.policy, str(row.seed), str(row.window), row.tenant),
            *(f"{row.in_time:,}", f"{row.in_time_counted:,}"),
            _difference(row.in_time, row.in_time_counted),
            "unknown" if row.goodput is None else f"{row.goodput:,.0f}",
            f"{row.goodput_counted:,}",
            _difference(row.goodput, row.goodput_counted),
            "-" if row.accuracy is None else f"{row.accuracy:.1%}",
            row.evidence,
            f"{row.accuracy_counted:.1%}",
        )
        for row in reported
    ]
    more = ("goodput", "counted", "difference", "accuracy at the end", "by", "counted")
    wrong = sum(not row.is_true for row in reported)
    caption = (
        "What the daemon reports and what clients counted; goodput neither unknown nor within "
        f"{CLOSE:.0%}: {wrong} of {len(reported)}"
    )
    return _table(caption, (*headers, *more), cells, words=4)


def _starts_table(starts: Sequence[Starts]) -> Table:
    headers = ("policy", "seed", "tenant", "starts", "serves after s", "longest s", "hidden")
    cells = [
        (
            *(start.policy, str(start.seed), start.tenant, str(start.count)),
            *(f"{start.serves_s:.2f}", f"{start.longest_s:.2f}", f"{start.hidden:.1%}"),
        )
        for start in starts
    ]
    caption = "Starts of workers within the windows; hidden: part of the cold overhead"
    return _table(caption, headers, cells, words=3)


def _table(
    caption: str, headers: Sequence[str], rows: Sequence[tuple[str, ...]], words: int
) -> Table:
    numeric = frozenset(range(words, len(headers)))
    return Table(caption, tuple(headers), tuple(rows), numeric)


def page(
    runs: Sequence[Finished],
    rows: Sequence[Row],
    retrainings: Sequence[Retraining],
    starts: Sequence[Starts],
    reported: Sequence[Reported],
) -> Page:
    """The whole report: the comparison first, then every run."""
    recorded = [recorded_run(run.measured.records) for run in runs]
    each_run = run_page(recorded, board(runs[0].live.scenario.board.name))
    made = tables(rows, retrainings, starts)
    near, of = planned_well(retrainings)
    planned = f"{near} of {of} retrainings after the first window took 0.9 to 1.1 of their plan."
    sections = [
        Section("Comparison", "comparison", (), (_shares(rows), made[1], made[3], made[0])),
        Section(
            "Live and simulated",
            "simulated",
            (
                "Ahead: accuracies and durations are those of the other policies' runs. Again: "
                "those of the run itself.",
            ),
            (_simulation(rows), made[2]),
        ),
        Section("What was lost to what", "losses", (), (_losses(rows),)),
        Section("Reported and counted", "reported", (), (reported_table(reported),)),
        Section("Planned and taken", "durations", (planned,), _durations(retrainings, made)),
    ]
    scenario, first = runs[0].live.scenario, runs[0].measured.records.run
    lead = (
        f"{first.board}, driver {first.driver}: {scenario.windows} windows of "
        f"{scenario.window_s:g} s, tenants {', '.join(first.tenants)}; the same requests for every "
        "policy, labels of a window at its start. Goodput counts requests answered in time and "
        "correctly, as clients saw it."
    )
    rest = tuple(
        replace(section, anchor=f"runs-{section.anchor}") for section in each_run.sections[1:]
    )
    return Page("MIGRator, live comparison", lead, (*sections, *rest))


def _means(rows: Iterable[Row], value: str) -> dict[str, list[float]]:
    """Per policy the value of all tenants together over sent, one per seed.

    Of the seeds with which all policies ran, or of all seeds if there is none.
    """
    whole = [row for row in rows if row.tenant == ALL]
    seeds: dict[str, set[int]] = {}
    for row in whole:
        seeds.setdefault(row.policy, set()).add(row.seed)
    common = set.intersection(*seeds.values()) or set.union(*seeds.values())
    found: dict[str, list[float]] = {}
    for row in whole:
        counted = getattr(row, value)
        if row.seed in common and counted is not None:
            found.setdefault(row.policy, []).append(counted / max(1, row.sent))
    return found


_SHARE = Axis("goodput over sent", share=True)


def _shares(rows: Sequence[Row]) -> Bars:
    shares = _means(rows, "goodput")
    order = sorted(shares, key=lambda name: -statistics.mean(shares[name]))
    values = tuple(statistics.mean(shares[name]) for name in order)
    return Bars(
        "Goodput share, mean over the seeds that all policies ran with",
        tuple(order),
        (Series("goodput share", values),),
        Axis("policy"),
        _SHARE,
        horizontal=True,
    )


def _simulation(rows: Sequence[Row]) -> Bars:
    live = _means(rows, "goodput")
    series = [
        Series("live", tuple(statistics.mean(shares) for shares in live.values()), paint=GOOD)
    ]
    for name, value, paint in (
        ("simulated ahead", "ahead", Paint(0)),
        ("simulated again", "again", Paint(1)),
    ):
        found = _means(rows, value)
        means = tuple(
            statistics.mean(found[policy]) if found.get(policy) else None for policy in live
        )
        series.append(Series(name, means, paint=paint))
    title = "Goodput share live and simulated, mean over the same seeds"
    return Bars(title, tuple(live), tuple(series), Axis("policy"), _SHARE)


def _losses(rows: Sequence[Row]) -> Bars:
    paints = dict(zip(_LOSSES, (WRONG, LATE, DROPPED, UNANSWERED, FAILED), strict=True))
    names = {
        "dropped": "given up before their deadline",
        "refused": "no instance ready, or full",
    }
    found = {value: _means(rows, value) for value in ("goodput", *_LOSSES)}
    policies = tuple(found["goodput"])
    series = [
        Series(
            names.get(value, value),
            tuple(statistics.mean(found[value][policy]) for policy in policies),
            paint=paints.get(value, GOOD),
        )
        for value in found
    ]
    title = "What became of the requests, mean over the same seeds"
    return Bars(title, policies, tuple(series), Axis("policy"), Axis("of sent", share=True), True)


def _durations(
    retrainings: Sequence[Retraining], made: Sequence[Table]
) -> tuple[Bars | Table, ...]:
    if not retrainings:
        return tuple(made[4:])
    names = tuple(
        f"{retraining.policy}, seed {retraining.seed}, window {retraining.window}: "
        f"{retraining.tenant}"
        for retraining in retrainings
    )
    series = (
        Series(
            "planned", tuple(retraining.planned_s for retraining in retrainings), paint=Paint(None)
        ),
        Series("taken", tuple(retraining.taken_s for retraining in retrainings), paint=Paint(0)),
    )
    title, seconds = "Retrainings, planned and taken", Axis("duration without the start", "s")
    chart = Bars(title, names, series, Axis("retraining"), seconds, horizontal=True)
    return (chart, *made[4:])


def _markdown(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(table.headers)} |"
    yield "|" + "---|" * len(table.headers)
    for row in table.rows:
        yield f"| {' | '.join(row)} |"
