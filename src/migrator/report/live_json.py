"""A live run as JSON: how it stands, its windows."""

from __future__ import annotations

from dataclasses import asdict

from migrator.records.standing import Standing
from migrator.records.views import Counted, LiveRun, LiveWindow


def status_json(stands: Standing) -> dict[str, object]:
    """What `migrator status --json` prints."""
    return {
        "run": asdict(stands.run),
        "life": stands.found.life,
        "why": stands.found.why,
        "answered": stands.found.answer is not None,
        "last_s": stands.last_s,
        "window": stands.window,
        "slot": stands.slot,
        "slots": stands.slots,
        "paused": stands.paused,
        "tenants": [asdict(each) for each in stands.tenants],
        "units": [asdict(each) for each in stands.units],
        "events": [asdict(each) for each in stands.events],
    }


def windows_json(run: LiveRun) -> dict[str, object]:
    """What `migrator windows --json` prints; plans are in that of a single window."""
    return {
        "run": asdict(run.records.run),
        "windows": [_window(each) for each in run.windows],
        "tenants": {name: _counted(each) for name, each in run.totals.items()},
        "whole": _counted(run.whole),
    }


def window_json(run: LiveRun, window: LiveWindow) -> dict[str, object]:
    """What `migrator windows N --json` prints."""
    until_s = window.until_s
    units = [
        asdict(each)
        for each in run.records.units
        if each.from_s < until_s and (each.to_s or until_s) > window.row.began_s
    ]
    return _window(window) | {
        "plan": window.row.plan,
        "units": units,
        "versions": [asdict(e) for e in run.records.versions if window.holds(e.at_s)],
        "events": [asdict(each) for each in run.events_of(window)],
    }


def _window(window: LiveWindow) -> dict[str, object]:
    row = {name: value for name, value in asdict(window.row).items() if name != "plan"}
    tenants = {name: _counted(each) for name, each in window.tenants.items()}
    for name, known in window.rows.items():
        tenants[name] |= {
            "labelled": known.labelled,
            "accuracy_before": known.accuracy_before,
            "accuracy_estimated": known.accuracy_estimated,
            "accuracy_after": known.accuracy_after,
            "version": known.version,
        }
    return row | {"ended": window.ended, "tenants": tenants, "whole": _counted(window.whole)}


def _counted(each: Counted) -> dict[str, object]:
    return asdict(each) | {"wrong": each.wrong, "goodput_share": each.share}
