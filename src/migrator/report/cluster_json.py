"""A placement and a cluster's run as JSON; the first is also what a later placement starts from."""

from __future__ import annotations

from typing import Any

from migrator.core.cluster import ClusterOutcome, ClusterPlan
from migrator.report.run_json import run_json

Json = dict[str, Any]


def plan_json(plan: ClusterPlan) -> Json:
    """Everything that was found."""
    return {
        "scenario": plan.scenario,
        "goodput_rps": plan.goodput_rps,
        "upper_bound_rps": plan.upper_bound_rps,
        "gap": plan.gap,
        "place_s": plan.place_s,
        "one_more_rps": dict(plan.one_more_rps),
        "gpus": [
            {
                "gpu": each.gpu.name,
                "board": each.gpu.board.name,
                "node": each.gpu.node,
                "tenants": list(each.tenants),
                "goodput_rps": each.goodput_rps,
                "load": each.load,
                "planned": each.planned,
            }
            for each in plan.gpus
        ],
        "unplaced": [{"tenant": each.tenant, "why": each.why} for each in plan.unplaced],
        "moved": list(plan.moved),
        "notes": list(plan.notes),
        "placement": plan.placement,
    }


def outcome_json(outcome: ClusterOutcome) -> Json:
    """All GPUs together, and each one's run."""
    tally = outcome.tally
    busy = [each for each in outcome.plan.gpus if each.tenants]
    return {
        "scenario": outcome.scenario,
        "policy": outcome.policy,
        "forecaster": outcome.forecaster,
        "seed": outcome.seed,
        "received": tally.received,
        "goodput": tally.goodput,
        "goodput_share": tally.goodput_share,
        "slo_attainment": tally.slo_attainment,
        "accuracy": tally.accuracy,
        "late": tally.late,
        "dropped": tally.dropped,
        "reconfigurations": outcome.reconfigurations,
        "plan_s": outcome.plan_s,
        "plan": plan_json(outcome.plan),
        "gpus": [
            {"gpu": each.gpu.name, **run_json(run)}
            for each, run in zip(busy, outcome.runs, strict=True)
        ],
    }
