"""A placement on a cluster, and the simulated run of a cluster: tables and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.cluster.scenario import ClusterPlan, shorten
from migrator.core.outcome import Tally
from migrator.report.run_json import Json, fairness_json, pick, preferences_json, run_json
from migrator.report.terminal import count, percent, plural, table_lines, wrapped

if TYPE_CHECKING:
    from migrator.cluster.simulate import ClusterOutcome

_MOST_ROWS = 40
_PLAN_HEADERS = ("GPU", "board", "tenants", "number", "goodput/s", "load")
_PLAN_KEY = (
    "goodput/s: requests a second in time and correct, by the plan of the next window; load: mean\n"
    "rates over what the whole board could answer for each tenant"
)
_SHORT_RPS = 0.05
"""A GPU that is less short of floors is not mentioned."""
_RUN_HEADERS = ("GPU", "received", "goodput", "share", "SLO", "accuracy", "late", "dropped", "new")
_RUN_KEY = "share: goodput / received; SLO: in time / received; new: instances that were new"


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
        lines.append(f"{len(plan.gpus) - _MOST_ROWS} more GPUs are in --json")
    return "\n".join([*lines, "", _PLAN_KEY, "", *_plan_lines(plan)])


def _plan_lines(plan: ClusterPlan) -> list[str]:
    """What the table does not say, a sentence each."""
    if plan.has_preferences:
        sentences = [
            f"with weights and floors counted, no placement is better by more than {plan.gap:.2%}"
        ]
        short = [gpu for gpu in plan.gpus if gpu.short_rps >= _SHORT_RPS]
        sentences += [
            f"{gpu.gpu.name} is {gpu.short_rps:,.1f} requests/s short of its tenants' floors"
            for gpu in short[:_MOST_ROWS]
        ]
    else:
        sentences = [
            f"no placement has more than {_rate(plan.upper_bound_rps)} requests/s: "
            f"the gap is {plan.gap:.2%}"
        ]
    if plan.moved:
        move = "moves" if len(plan.moved) == 1 else "move"
        sentences.append(f"{plural(len(plan.moved), 'tenant')} {move}: {shorten(plan.moved)}")
    reasons: dict[str, list[str]] = {}
    for unplaced in plan.unplaced:
        reasons.setdefault(unplaced.why, []).append(unplaced.tenant)
    sentences += [f"no GPU for {shorten(names)}: {why}" for why, names in reasons.items()]
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


def cluster_plan_json(plan: ClusterPlan) -> Json:
    """A placement; a later placement can start from it."""
    return {
        **pick(plan, "scenario", "goodput_rps", "value_rps", "short_rps"),
        **pick(plan, "upper_bound_rps", "gap", "place_s"),
        "gpus": [
            {
                "gpu": gpu.gpu.name,
                "board": gpu.gpu.board.name,
                "node": gpu.gpu.node,
                "tenants": list(gpu.tenants),
                **pick(gpu, "goodput_rps", "short_rps", "load", "planned"),
            }
            for gpu in plan.gpus
        ],
        "unplaced": [pick(unplaced, "tenant", "why") for unplaced in plan.unplaced],
        "moved": list(plan.moved),
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
