"""A run as JSON: the same figures in all, per tenant, and per window and tenant; and a lead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from migrator.core.comparison import Lead
from migrator.core.outcome import RunOutcome, Tally, TenantOutcome, WindowOutcome

Json = dict[str, Any]


def run_json(outcome: RunOutcome) -> Json:
    """Everything counted in a run, ready for `json.dumps`: what is not a number is null."""
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
    """One run as it is, several as a list; side by side with what replanning regains."""
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
    """The sum, None where a window has none: part of a sum would mislead."""
    known = list(values)
    whole = [each for each in known if each is not None]
    return _number(math.fsum(whole)) if known and len(whole) == len(known) else None


def _number(value: float | None) -> float | None:
    """A plain number; JSON knows no NaN and no infinity, and json no numpy."""
    return None if value is None or not math.isfinite(value) else float(value)
