"""A placement on a cluster, and the simulated run of a cluster: tables, page, picture, JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from migrator.cluster.outcome import ClusterOutcome
from migrator.cluster.scenario import ClusterPlan, GpuPlacement
from migrator.core.outcome import Tally
from migrator.report.html_page import write_figure
from migrator.report.page import Axis, Bars, Lines, Page, Picture, Section, Series, Table
from migrator.report.run_json import Json, fairness_json, pick, preferences_json, run_json
from migrator.report.terminal import capitalised, count, percent, plural, table_lines, wrapped

_MOST_ROWS = 40
_NAMED = 24
"""Up to this many GPUs, charts name each of them."""
_PLAN_HEADERS = ("GPU", "board", "tenants", "number", "goodput/s", "load")
_PLAN_KEY = (
    "goodput/s: requests a second in time and correct, by the plan of the next window; load: mean\n"
    "rates over what the whole board could answer for each tenant"
)
_SHORT_RPS = 0.05
"""A GPU that is less short of floors is not mentioned."""
_MOST_SHORT = 8
_RUN_HEADERS = ("GPU", "received", "goodput", "share", "SLO", "accuracy", "late", "dropped", "new")
_RUN_KEY = "share: goodput / received; SLO: in time / received; new: instances that were new"


# Text


def plan_table(plan: ClusterPlan) -> str:
    """A line per GPU, then all of them, the bound, and remarks."""
    rows = [
        (
            gpu.gpu.name,
            gpu.gpu.board.name,
            ", ".join(gpu.tenants) or "-",
            str(len(gpu.tenants)),
            _rate(gpu.goodput_rps),
            f"{gpu.load:.0%}",
        )
        for gpu in plan.gpus[:_MOST_ROWS]
    ]
    mean_load = sum(gpu.load for gpu in plan.gpus) / len(plan.gpus)
    tenants = _tenants(plan)
    total = ("all", "", "", str(tenants), _rate(plan.goodput_rps), f"{mean_load:.0%}")
    lines = [f"{plan.scenario}: {plural(tenants, 'tenant')} on {plural(len(plan.gpus), 'GPU')}"]
    lines += table_lines(_PLAN_HEADERS, [rows, [total]], text_columns=3, shrinks=2)
    if len(plan.gpus) > _MOST_ROWS:
        lines.append(f"{len(plan.gpus) - _MOST_ROWS} more GPUs are in --json and --out")
    return "\n".join([*lines, "", _PLAN_KEY, "", *plan_lines(plan)])


def plan_lines(plan: ClusterPlan) -> list[str]:
    """What the table does not say, a sentence each."""
    if plan.has_preferences:
        sentences = [
            f"with weights and floors counted, no placement is better by more than {plan.gap:.2%}"
        ]
        short = [gpu for gpu in plan.gpus if gpu.short_rps >= _SHORT_RPS]
        sentences += [
            f"{gpu.gpu.name} is {gpu.short_rps:,.1f} requests/s short of its tenants' floors"
            for gpu in short[:_MOST_SHORT]
        ]
        if len(short) > _MOST_SHORT:
            sentences.append(f"{len(short) - _MOST_SHORT} more GPUs are short of floors")
    else:
        sentences = [
            f"no placement has more than {_rate(plan.upper_bound_rps)} requests/s: "
            f"the gap is {plan.gap:.2%}"
        ]
        for board, more in plan.one_more_rps.items():
            sentences.append(f"one more {board} would bring about {_rate(more)} requests/s more")
    if plan.moved:
        move = "moves" if len(plan.moved) == 1 else "move"
        sentences.append(f"{plural(len(plan.moved), 'tenant')} {move}: {_some(plan.moved)}")
    sentences += plan.notes
    reasons: dict[str, list[str]] = {}
    for unplaced in plan.unplaced:
        reasons.setdefault(unplaced.why, []).append(unplaced.tenant)
    sentences += [f"no GPU for {_some(names)}: {why}" for why, names in reasons.items()]
    guessed = sum(not gpu.planned for gpu in plan.gpus)
    if guessed:
        gpus = plural(guessed, "GPU")
        sentences.append(f"{gpus} not planned in time, estimated; raise --seconds")
    return [line for sentence in sentences for line in wrapped(sentence)]


def outcome_table(outcome: ClusterOutcome) -> str:
    """A line per GPU and one for all of them."""
    busy = [gpu for gpu in outcome.plan.gpus if gpu.tenants]
    rows = [
        (gpu.gpu.name, *_tally_cells(run.tally), count(run.reconfigurations))
        for gpu, run in list(zip(busy, outcome.runs, strict=True))[:_MOST_ROWS]
    ]
    total = ("all", *_tally_cells(outcome.tally), count(outcome.reconfigurations))
    lines = [
        f"{outcome.scenario} under {outcome.policy} (forecaster {outcome.forecaster}, seed "
        f"{outcome.seed}): {plural(len(busy), 'GPU')}"
    ]
    lines += table_lines(_RUN_HEADERS, [rows, [total]], text_columns=1, shrinks=0)
    if len(busy) > _MOST_ROWS:
        lines.append(f"{len(busy) - _MOST_ROWS} more GPUs are in --json")
    per_gpu = outcome.tally.goodput / len(busy)
    kept = outcome.preferences.words(outcome.tenants)
    sentences = [f"goodput per GPU {per_gpu:,.0f}", *wrapped(outcome.fairness.words)]
    sentences += [line for words in kept[:_MOST_ROWS] for line in wrapped(words)]
    if len(kept) > _MOST_ROWS:
        sentences.append(f"floors of {len(kept) - _MOST_ROWS} more tenants are in --json")
    return "\n".join([*lines, "", _RUN_KEY, *sentences])


def _tally_cells(tally: Tally) -> tuple[str, ...]:
    return (
        count(tally.received),
        count(tally.goodput),
        *map(percent, (tally.goodput_share, tally.slo_attainment, tally.accuracy)),
        count(tally.late),
        count(tally.dropped),
    )


def _tenants(plan: ClusterPlan) -> int:
    return sum(len(gpu.tenants) for gpu in plan.gpus)


def _rate(rps: float) -> str:
    return f"{rps:,.0f}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


# Page and picture


def draw_placement(plan: ClusterPlan, path: Path) -> None:
    """Draw as HTML or PNG; a failure or Ctrl-C leaves no file."""

    def picture() -> Picture:
        subtitle = f"{plan.goodput_rps:,.0f} requests/s, gap {plan.gap:.2%}"
        return Picture(plan.scenario, subtitle, _charts(plan))

    write_figure(path, "--out", lambda: placement_page(plan), picture)


def placement_page(plan: ClusterPlan) -> Page:
    """The page: goodput and load of every GPU, and the tenants placed on it."""
    far = f"at most {plan.gap:.2%} below the best placement" if plan.gap > 0 else "proven optimal"
    far += ", weights and floors counted" if plan.has_preferences else ""
    lead = (
        f"{plural(_tenants(plan), 'tenant')} on {plural(len(plan.gpus), 'GPU')}: "
        f"{plan.goodput_rps:,.0f} requests a second in time and correct, {far}."
    )
    sentences = tuple(f"{capitalised(line)}." for line in plan_lines(plan))
    sections = (
        Section("GPUs", "gpus", sentences, _charts(plan)),
        Section("Tenants by GPU", "placement", (), (_table(plan.gpus),)),
    )
    return Page(f"Placement of {plan.scenario}", lead, sections)


def _charts(plan: ClusterPlan) -> tuple[Bars | Lines, ...]:
    draw = _named_bars if len(plan.gpus) <= _NAMED else _ranked_lines
    goodput, load = Axis("Goodput", "requests/s"), Axis("Load", share=True)
    return (
        draw(plan, goodput, lambda gpu: gpu.goodput_rps),
        draw(plan, load, lambda gpu: gpu.load),
    )


def _by_board(plan: ClusterPlan) -> dict[str, list[GpuPlacement]]:
    """Board -> its GPUs, most goodput first."""
    by_board: dict[str, list[GpuPlacement]] = {}
    for placement in sorted(plan.gpus, key=lambda gpu: -gpu.goodput_rps):
        by_board.setdefault(placement.gpu.board.name, []).append(placement)
    return by_board


def _named_bars(plan: ClusterPlan, y: Axis, value: Callable[[GpuPlacement], float]) -> Bars:
    """A bar per GPU, a colour per board."""
    boards = _by_board(plan)
    ranked = [gpu for gpus in boards.values() for gpu in gpus]
    series = tuple(
        Series(name, tuple(value(gpu) if gpu.gpu.board.name == name else None for gpu in ranked))
        for name in boards
    )
    names = tuple(gpu.gpu.name for gpu in ranked)
    return Bars(y.title, names, series, Axis("GPUs by board, most goodput first"), y, stacked=True)


def _ranked_lines(plan: ClusterPlan, y: Axis, value: Callable[[GpuPlacement], float]) -> Lines:
    """A line per board over its GPUs."""
    boards = _by_board(plan)
    longest = max(map(len, boards.values()))
    series = tuple(
        Series(name, (*map(value, gpus), *((None,) * (longest - len(gpus)))))
        for name, gpus in boards.items()
    )
    ranks = tuple(float(rank) for rank in range(1, longest + 1))
    x = Axis("GPUs of a board, most goodput first")
    return Lines(y.title, ranks, series, x, y, until=longest + 1.0)


def _table(gpus: Sequence[GpuPlacement]) -> Table:
    rows = tuple(
        (
            gpu.gpu.name,
            gpu.gpu.board.name,
            gpu.gpu.node or "-",
            ", ".join(gpu.tenants) or "-",
            f"{gpu.goodput_rps:,.0f}",
            f"{gpu.load:.0%}",
        )
        for gpu in gpus
    )
    headers = ("GPU", "board", "node", "tenants", "goodput/s", "load")
    return Table("Every GPU", headers, rows, frozenset((4, 5)))


def cluster_plan_json(plan: ClusterPlan) -> Json:
    """A placement; a later placement can start from it."""
    return {
        **pick(plan, "scenario", "goodput_rps", "upper_bound_rps", "gap", "place_s"),
        **(pick(plan, "value_rps", "short_rps") if plan.has_preferences else {}),
        "one_more_rps": dict(plan.one_more_rps),
        "gpus": [
            {
                "gpu": gpu.gpu.name,
                "board": gpu.gpu.board.name,
                "node": gpu.gpu.node,
                "tenants": list(gpu.tenants),
                **pick(gpu, "goodput_rps", "load", "planned"),
                **(pick(gpu, "short_rps") if plan.has_preferences else {}),
            }
            for gpu in plan.gpus
        ],
        "unplaced": [pick(unplaced, "tenant", "why") for unplaced in plan.unplaced],
        "moved": list(plan.moved),
        "notes": list(plan.notes),
        "placement": plan.placement,
    }


def cluster_outcome_json(outcome: ClusterOutcome) -> Json:
    """All GPUs together, and the run of each one."""
    busy = [gpu for gpu in outcome.plan.gpus if gpu.tenants]
    counts = ("goodput", "goodput_share", "slo_attainment", "accuracy", "late", "dropped")
    return {
        **pick(outcome, "scenario", "policy", "forecaster", "seed"),
        **pick(outcome.tally, "received", *counts),
        **preferences_json(outcome.preferences, outcome.tenants),
        "fairness": fairness_json(outcome.fairness),
        **pick(outcome, "reconfigurations", "plan_s"),
        "plan": cluster_plan_json(outcome.plan),
        "gpus": [
            {"gpu": placement.gpu.name, **run_json(run)}
            for placement, run in zip(busy, outcome.runs, strict=True)
        ],
    }
