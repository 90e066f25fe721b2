"""A placement and a cluster's run as tables for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from migrator.core.cluster import ClusterOutcome, ClusterPlan, GpuPlacement
from migrator.core.outcome import Tally
from migrator.report.run_text import COLUMNS, count, laid_out

MOST_ROWS = 40
_PLAN_HEADERS = ("GPU", "board", "tenants", "number", "goodput/s", "load")
_PLAN_KEY = (
    "goodput/s: requests a second in time and correct, by the plan of the next window; load: mean\n"
    "rates over what the whole board could answer for each tenant"
)
_RUN_HEADERS = ("GPU", "received", "goodput", "share", "SLO", "accuracy", "late", "dropped", "new")
_RUN_KEY = "share: goodput / received; SLO: in time / received; new: instances that were new"


def plan_table(plan: ClusterPlan) -> str:
    """A line per GPU, then all of them, the bound, and what else is worth knowing."""
    rows = [_gpu_cells(each) for each in plan.gpus[:MOST_ROWS]]
    total = sum(len(each.tenants) for each in plan.gpus)
    together = ("all", "", "", str(total), _rate(plan.goodput_rps), _mean_load(plan.gpus))
    lines = [f"{plan.scenario}: {many(total, 'tenant')} on {many(len(plan.gpus), 'GPU')}"]
    lines += laid_out(_PLAN_HEADERS, [rows, [together]], words=3, shrinks=2)
    if len(plan.gpus) > MOST_ROWS:
        lines.append(f"{len(plan.gpus) - MOST_ROWS} more GPUs are in --json and --out")
    return "\n".join([*lines, "", _PLAN_KEY, "", *plan_words(plan)])


def plan_words(plan: ClusterPlan) -> list[str]:
    """What the table does not say, a sentence each."""
    words = [
        f"no placement has more than {_rate(plan.upper_bound_rps)} requests/s: "
        f"the gap is {plan.gap:.2%}"
    ]
    for board, more in plan.one_more_rps.items():
        words.append(f"one more {board} would bring about {_rate(more)} requests/s more")
    if plan.moved:
        move = "moves" if len(plan.moved) == 1 else "move"
        words.append(f"{many(len(plan.moved), 'tenant')} {move}: {_some(plan.moved)}")
    words += plan.notes
    reasons: dict[str, list[str]] = {}
    for each in plan.unplaced:
        reasons.setdefault(each.why, []).append(each.tenant)
    words += [f"no GPU for {_some(names)}: {why}" for why, names in reasons.items()]
    guessed = sum(not each.planned for each in plan.gpus)
    if guessed:
        words.append(f"{many(guessed, 'GPU')} not planned in time, estimated; raise --seconds")
    return [line for each in words for line in textwrap.wrap(each, COLUMNS, subsequent_indent="  ")]


def outcome_table(outcome: ClusterOutcome) -> str:
    """A line per GPU and one for all of them."""
    busy = [each for each in outcome.plan.gpus if each.tenants]
    rows = [
        (each.gpu.name, *_tally_cells(run.tally), count(run.reconfigurations))
        for each, run in list(zip(busy, outcome.runs, strict=True))[:MOST_ROWS]
    ]
    together = ("all", *_tally_cells(outcome.tally), count(outcome.reconfigurations))
    lines = [
        f"{outcome.scenario} under {outcome.policy} (forecaster {outcome.forecaster}, seed "
        f"{outcome.seed}): {many(len(busy), 'GPU')}"
    ]
    lines += laid_out(_RUN_HEADERS, [rows, [together]], words=1, shrinks=0)
    if len(busy) > MOST_ROWS:
        lines.append(f"{len(busy) - MOST_ROWS} more GPUs are in --json")
    per_gpu = outcome.tally.goodput / len(busy)
    return "\n".join([*lines, "", _RUN_KEY, f"goodput per GPU {per_gpu:,.0f}"])


def _gpu_cells(each: GpuPlacement) -> tuple[str, ...]:
    return (
        each.gpu.name,
        each.gpu.board.name,
        ", ".join(each.tenants) or "-",
        str(len(each.tenants)),
        _rate(each.goodput_rps),
        f"{each.load:.0%}",
    )


def _mean_load(gpus: Sequence[GpuPlacement]) -> str:
    return f"{sum(each.load for each in gpus) / len(gpus):.0%}"


def _tally_cells(tally: Tally) -> tuple[str, ...]:
    return (
        count(tally.received),
        count(tally.goodput),
        *(f"{part:.1%}" for part in (tally.goodput_share, tally.slo_attainment, tally.accuracy)),
        count(tally.late),
        count(tally.dropped),
    )


def many(number: int, what: str) -> str:
    """A number of things in words."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _rate(rps: float) -> str:
    return f"{rps:,.0f}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
