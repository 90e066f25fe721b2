"""Runs as JSON: simulations, clusters, and the state and windows of recorded runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from migrator.core.cluster import ClusterOutcome, ClusterPlan
from migrator.core.comparison import Lead
from migrator.core.outcome import RunOutcome, Tally, TenantOutcome, WindowOutcome
from migrator.records.runs import RecordedRun, RecordedWindow
from migrator.records.standing import Standing

Json = dict[str, Any]
_STATUS_EVENTS = 8


# Simulations


def run_json(outcome: RunOutcome) -> Json:
    """Everything counted in a run, ready for `json.dumps`: NaN and infinity become null."""
    return {
        "policy": outcome.policy,
        "scenario": outcome.scenario,
        "forecaster": outcome.forecaster,
        "seed": outcome.seed,
        **_tally(outcome.tally),
        "reconfigurations": outcome.reconfigurations,
        "plan_s": _number(outcome.plan_s),
        "predicted": _sum(each.predicted for each in outcome.windows),
        "fluid": _sum(each.fluid for each in outcome.windows),
        "tenants": _tenants(outcome),
        "windows": [_window(each) for each in outcome.windows],
    }


def runs_json(runs: Sequence[Json], lead: Lead | None = None) -> object:
    """One run as it is, several as a list; with a lead, what replanning regains."""
    if lead is not None:
        return {"runs": list(runs), "lead": lead_json(lead)}
    return runs[0] if len(runs) == 1 else list(runs)


def lead_json(lead: Lead) -> Json:
    """Window plan, replanned and oracle, and what replanning changes and regains."""
    return {
        "scenario": lead.scenario,
        "window_plan": _number(lead.window_plan),
        "replanned": _number(lead.replanned),
        "oracle": _number(lead.oracle),
        "change": _number(lead.change),
        "regained": _number(lead.regained),
    }


def _tenants(outcome: RunOutcome) -> list[Json]:
    changes = outcome.tenant_reconfigurations
    part_s = _number(outcome.plan_s / max(1, len(changes)))  # planned together: equal parts
    return [
        {"tenant": name, **_tally(tally), "reconfigurations": changes[name], "plan_s": part_s}
        for name, tally in outcome.tenants.items()
    ]


def _window(window: WindowOutcome) -> Json:
    part_s = _number(window.plan_s / max(1, len(window.tenants)))
    return {
        "window": window.window,
        **_tally(window.tally),
        "reconfigurations": window.reconfigurations,
        "plan_s": _number(window.plan_s),
        "predicted": _number(window.predicted),
        "fluid": _number(window.fluid),
        "tenants": [_tenant(each, part_s) for each in window.tenants],
    }


def _tenant(tenant: TenantOutcome, part_s: float | None) -> Json:
    return {
        "tenant": tenant.tenant,
        **_tally(tenant.tally),
        "reconfigurations": tenant.reconfigurations,
        "plan_s": part_s,
        "accuracy_before": _number(tenant.accuracy_before),
        "retrained_s": _number(tenant.retrained_s),
        "accuracy_after": _number(tenant.accuracy_after),
        "forecast_by": tenant.forecast_by,
    }


def _tally(tally: Tally) -> Json:
    return {
        "received": tally.received,
        "goodput": _number(tally.goodput),
        "goodput_share": _number(tally.goodput_share),
        "slo_attainment": _number(tally.slo_attainment),
        "accuracy": _number(tally.accuracy),
        "late": tally.late,
        "wrong": _number(tally.wrong),
        "dropped": tally.dropped,
        "queued": tally.queued,
        "while_reconfiguring": tally.while_reconfiguring,
    }


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum; None if a window has no value, since part of a sum would mislead."""
    known = list(values)
    whole = [each for each in known if each is not None]
    return _number(math.fsum(whole)) if known and len(whole) == len(known) else None


def _number(value: float | None) -> float | None:
    """A plain float: JSON has no NaN and no infinity, and `json` does not know numpy."""
    return None if value is None or not math.isfinite(value) else float(value)


# Clusters


def cluster_plan_json(plan: ClusterPlan) -> Json:
    """A placement; a later placement can start from it."""
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


def cluster_outcome_json(outcome: ClusterOutcome) -> Json:
    """All GPUs together, and the run of each one."""
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
        "plan": cluster_plan_json(outcome.plan),
        "gpus": [
            {"gpu": each.gpu.name, **run_json(run)}
            for each, run in zip(busy, outcome.runs, strict=True)
        ],
    }


# Recorded runs


def status_json(stands: Standing) -> Json:
    """What `migrator status --json` prints."""
    assert stands.run is not None
    return {
        "run": asdict(stands.run),
        "life": stands.probe.state,
        "why": stands.probe.why,
        "answered": stands.probe.reply is not None,
        "last_s": stands.last_s,
        "window": stands.window,
        "slot": stands.slot,
        "slots": stands.slots,
        "paused": stands.paused,
        "tenants": [
            {
                "name": each.name,
                "received": each.tally.received,
                "in_time": each.tally.unjudged,
                "late": each.tally.late,
                "dropped": each.tally.dropped,
                "failed": each.tally.failed,
                "waiting": each.waiting,
                "workers": each.workers,
                "accuracy": each.accuracy,
                "version": each.version,
                "retraining": each.retraining,
                "progress": each.progress,
                "drained": each.drained,
            }
            for each in stands.tenants
        ],
        "units": [
            {
                "start": each.start,
                "gpcs": each.gpcs,
                "state": each.state,
                "task": each.task,
                "since_s": each.since_s,
            }
            for each in stands.held
        ],
        "events": [asdict(each) for each in stands.events[-_STATUS_EVENTS:]],
    }


def top_json(stands: Standing) -> Json:
    """What `migrator top --json` prints."""

    def unit(each: Any) -> Json:
        found = asdict(each)
        del found["since_s"]
        return found

    return {
        "now_s": stands.now_s,
        "scenario": stands.scenario,
        "board": stands.board,
        "driver": stands.driver,
        "policy": stands.policy,
        "run": stands.run.run if stands.run is not None else None,
        "life": stands.probe.state,
        "why": stands.probe.why,
        "window": stands.window,
        "slot": stands.slot,
        "slots": stands.slots,
        "paused": stands.paused,
        "tenants": [
            {
                "name": each.name,
                "paced": asdict(each.pace),
                "goodput_rps": each.goodput_rps,
                "waiting": each.waiting,
                "accuracy": each.accuracy,
                "version": each.version,
                "retraining": None if each.retraining == "none" else each.retraining,
                "progress": each.progress,
                "drained": each.drained,
            }
            for each in stands.tenants
        ],
        "planned": None if stands.planned is None else [unit(each) for each in stands.planned],
        "held": [unit(each) for each in stands.held],
        "lines": [asdict(each) for each in stands.distinct_events],
    }


def windows_json(run: RecordedRun) -> Json:
    """What `migrator windows --json` prints; plans are in that of a single window."""
    return {
        "run": asdict(run.records.run),
        "windows": [_recorded_window(each) for each in run.windows],
        "tenants": {name: _recorded_tally(each) for name, each in run.totals.items()},
        "whole": _recorded_tally(run.tally),
    }


def window_json(run: RecordedRun, window: RecordedWindow) -> Json:
    """What `migrator windows N --json` prints."""
    until_s = window.until_s
    units = [
        asdict(each)
        for each in run.records.units
        if each.from_s < until_s and (each.to_s or until_s) > window.row.began_s
    ]
    return _recorded_window(window) | {
        "plan": window.row.plan,
        "units": units,
        "versions": [asdict(e) for e in run.records.versions if window.contains(e.at_s)],
        "events": [asdict(each) for each in run.events_of(window)],
    }


def _recorded_window(window: RecordedWindow) -> Json:
    row = {name: value for name, value in asdict(window.row).items() if name != "plan"}
    tenants = {name: _recorded_tally(each) for name, each in window.tenants.items()}
    for name, known in window.rows.items():
        tenants[name] |= {
            "labelled": known.labelled,
            "accuracy_before": known.accuracy_before,
            "accuracy_estimated": known.accuracy_estimated,
            "accuracy_after": known.accuracy_after,
            "version": known.version,
        }
    whole = _recorded_tally(window.tally)
    return row | {"ended": window.ended, "tenants": tenants, "whole": whole}


def _recorded_tally(tally: Tally) -> Json:
    judged = not tally.unjudged
    return {
        "received": tally.received,
        "in_time": round(tally.in_time),
        "late": tally.late,
        "dropped": tally.dropped,
        "failed": tally.failed,
        "goodput": tally.goodput if judged else None,
        "while_reconfiguring": tally.while_reconfiguring if judged else None,
        "wrong": tally.wrong if judged else None,
        "goodput_share": tally.goodput_share if judged and tally.received else None,
    }
