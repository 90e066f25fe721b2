"""Runs as JSON: simulations, and the state and windows of recorded runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from migrator.core.comparison import Row, SeedValues, reference_policy, reference_row
from migrator.core.evidence import Accuracy
from migrator.core.fairness import Fairness
from migrator.core.outcome import Tally
from migrator.core.preferences import Preferences
from migrator.records.current_run import CurrentRun
from migrator.records.outcome import RunOutcome, TenantOutcome, WindowOutcome
from migrator.records.runs import RecordedRun, RecordedWindow

Json = dict[str, Any]
_STATUS_EVENTS = 8


def pick(source: object, *names: str) -> Json:
    """The named attributes, ready for `json.dumps`.

    Floats become plain ones: JSON has no NaN and no infinity, and `json` does not know numpy.
    """
    attributes = {name: getattr(source, name) for name in names}
    return {k: _number(v) if isinstance(v, float) else v for k, v in attributes.items()}


# Simulations


def run_json(outcome: RunOutcome) -> Json:
    """Everything counted in a run; NaN and infinity become null."""
    return {
        **pick(outcome, "policy", "scenario", "forecaster", "seed", "labels"),
        **_tally(outcome.tally),
        "fairness": fairness_json(outcome.fairness),
        **preferences_json(outcome.preferences, outcome.tenants),
        **pick(outcome, "reconfigurations", "plan_s"),
        "predicted": _sum(window.predicted for window in outcome.windows),
        "fluid": _sum(window.fluid for window in outcome.windows),
        "tenants": _tenants(outcome),
        "windows": [_window(window) for window in outcome.windows],
    }


def preferences_json(preferences: Preferences, tallies: Mapping[str, Tally]) -> Json:
    """Weights, floors and weighted goodput; nothing if every tenant has the defaults."""
    facts: Json = dict(preferences.facts)
    weighted = preferences.weighted_goodput(tallies)
    return facts if weighted is None else facts | {"weighted_goodput": _number(weighted)}


def fairness_json(fairness: Fairness) -> Json:
    """The worst tenant, its goodput share, and Jain's index of all tenants'."""
    return pick(fairness, "worst_tenant", "worst_share", "jain_index")


def rows_json(rows: Sequence[Row]) -> list[Json]:
    """Rows of a comparison: each measure's mean, values by seed and difference from the reference
    policy with the same seeds, null for that policy itself."""
    to = reference_policy(rows)
    return [
        {
            **pick(row, "scenario", "policy", "seeds"),
            "reference": to,
            **_measures(row, reference_row(row, rows, to)),
        }
        for row in rows
    ]


def _measures(row: Row, reference: Row | None) -> Json:
    measures: Json = {}
    for name, values in vars(row).items():
        if isinstance(values, SeedValues):
            difference = reference and values.difference_from(getattr(reference, name))
            measures[name] = {
                **pick(values, "mean", "by_seed"),
                "difference": difference and asdict(difference),
            }
    return measures


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
        **pick(window, "reconfigurations", "plan_s", "predicted", "fluid"),
        "plans": [pick(plan, "slot", "charge", "gap") for plan in window.plans],
        "tenants": [_tenant(tenant, part_s) for tenant in window.tenants],
    }


def _tenant(tenant: TenantOutcome, part_s: float | None) -> Json:
    waits = tenant.not_retrained
    return {
        "tenant": tenant.tenant,
        **_tally(tenant.tally),
        "reconfigurations": tenant.reconfigurations,
        "plan_s": part_s,
        **pick(tenant, "accuracy_before", "retrained_s", "accuracy_after", "forecast_by"),
        "not_retrained": waits and {"reason": waits.reason.value, "why": waits.words},
    }


def _tally(tally: Tally) -> Json:
    return pick(
        tally,
        *("received", "goodput", "goodput_share", "slo_attainment", "accuracy", "late"),
        *("wrong", "dropped", "queued", "while_reconfiguring"),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum; None if a window has no value, since part of a sum would mislead."""
    terms = list(values)
    whole = [value for value in terms if value is not None]
    return _number(math.fsum(whole)) if terms and len(whole) == len(terms) else None


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# Recorded runs


def status_json(now: CurrentRun) -> Json:
    """What `migrator status --json` prints."""
    return {
        "run": asdict(now.run),
        "life": now.probe.state,
        "why": now.probe.why,
        "answered": now.probe.reply is not None,
        **pick(now, "last_s", "window", "slot", "slots", "paused", "files"),
        "tenants": [
            {
                "name": tenant.name,
                "received": tenant.tally.received,
                "in_time": tenant.tally.unjudged,
                **pick(tenant.tally, "late", "dropped", "failed"),
                **pick(tenant, "waiting", "workers"),
                **_accuracy(tenant.accuracy),
                **pick(tenant, "version", "retraining", "configuration"),
                **pick(tenant, "progress", "drained", "reason", "why"),
            }
            for tenant in now.tenants
        ],
        **Preferences.recorded(now.run.about).facts,
        "units": [
            pick(holding, "start", "gpcs", "state", "task", "since_s") for holding in now.held
        ],
        "events": [asdict(event) for event in now.events[-_STATUS_EVENTS:]],
    }


def _accuracy(accuracy: Accuracy | None) -> Json:
    if accuracy is None:
        return {"accuracy": None, "evidence": None}
    return {"accuracy": accuracy.value, "evidence": accuracy.evidence}


def windows_json(run: RecordedRun) -> Json:
    """What `migrator windows --json` prints; plans are in that of a single window."""
    return {
        "run": asdict(run.records.run),
        "windows": [_recorded_window(run, window) for window in run.windows],
        "tenants": {name: _recorded_tally(total) for name, total in run.totals.items()},
        "whole": _recorded_tally(run.tally),
        **preferences_json(run.preferences, run.totals),
    }


def window_json(run: RecordedRun, window: RecordedWindow) -> Json:
    """What `migrator windows N --json` prints."""
    until_s = window.until_s
    units = [
        asdict(unit)
        for unit in run.records.units
        if unit.from_s < until_s and (unit.to_s or until_s) > window.row.began_s
    ]
    return _recorded_window(run, window) | {
        "plan": window.row.plan,
        "units": units,
        "versions": [
            asdict(version) for version in run.records.versions if window.contains(version.at_s)
        ],
        "events": [asdict(event) for event in run.events_of(window)],
    }


def _recorded_window(run: RecordedRun, window: RecordedWindow) -> Json:
    row = {name: value for name, value in asdict(window.row).items() if name != "plan"}
    tenants = {name: _recorded_tally(tenant) for name, tenant in window.tenants.items()}
    accuracies = ("accuracy_before", "accuracy_estimated", "accuracy_after")
    for name, model in window.rows.items():
        tenants[name] |= pick(model, "labelled", *accuracies, "version", "evidence")
    for retraining in run.retrainings_of(window):
        duration = pick(retraining, "configuration", "planned_s", "taken_s")
        duration |= {"parts_s": dict(retraining.parts_s)}
        tenants.setdefault(retraining.tenant, {})["retraining"] = duration
    for retraining in run.not_retrained_in(window):
        tenants.setdefault(retraining.tenant, {})["not_retrained"] = pick(
            retraining, "reason", "why"
        )
    whole = _recorded_tally(window.tally)
    return row | {"ended": window.ended, "tenants": tenants, "whole": whole}


def _recorded_tally(tally: Tally) -> Json:
    """Null for what is unknown."""
    judged = pick(tally, "goodput", "wrong", "goodput_share")
    if tally.unjudged:
        judged = dict.fromkeys(judged)
    judged |= pick(tally, "while_reconfiguring")
    if not tally.received:
        judged["goodput_share"] = None
    counts = {"received": tally.received, "in_time": round(tally.in_time)}
    return counts | pick(tally, "late", "dropped", "failed") | judged
