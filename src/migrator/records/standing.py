"""How a live run stands now: from its records, and from its daemon where it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from migrator.core.action import ActionKind, Outcome
from migrator.records.rows import EventRecord, RunRow, TenantWindowRecord
from migrator.records.views import LiveRun, LiveWindow

LAST_EVENTS = 8
PAUSE, RESUME = ActionKind.PAUSE, ActionKind.RESUME
DRAIN, UNDRAIN = ActionKind.DRAIN, ActionKind.UNDRAIN


class Life(StrEnum):
    """Whether the daemon of a run is there."""

    RUNNING = "running"
    SILENT = "silent"
    """Its process is there and gives no answer."""
    ENDED = "ended"
    KILLED = "killed"
    """It has not said that it ended, and its process is gone."""


@dataclass(frozen=True)
class Found:
    """What was found out about the daemon."""

    life: Life
    why: str = ""
    """Why there is no answer."""
    answer: Mapping[str, Any] | None = None
    """Of GET /admin/status."""


def address(run: RunRow) -> str | None:
    """Where a run's daemon listens; None: the run does not say, or took any free port."""
    if isinstance(url := run.about.get("url"), str):
        return url
    host, port = run.about.get("host"), run.about.get("port")
    if not isinstance(host, str) or not isinstance(port, int) or not port:
        return None
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


@dataclass(frozen=True)
class TenantStanding:
    """One tenant now; None: nobody could be asked."""

    name: str
    received: int
    in_time: int
    late: int
    dropped: int
    failed: int | None
    waiting: int | None
    workers: int
    accuracy: float | None
    version: int | None
    retraining: str | None
    progress: float | None
    drained: bool = False


@dataclass(frozen=True)
class UnitStanding:
    """One instance or share now."""

    start: int | None
    gpcs: float
    state: str
    task: str | None
    since_s: float | None


@dataclass(frozen=True)
class Standing:
    """Everything that `migrator status` tells."""

    run: RunRow
    found: Found
    now_s: float
    last_s: float
    """When anything was last written down."""
    window: int | None
    slot: int | None
    slots: int
    paused: bool
    """Reconfiguration, by an operator; a daemon that is gone took that with it."""
    tenants: tuple[TenantStanding, ...]
    units: tuple[UnitStanding, ...]
    events: tuple[EventRecord, ...]


def standing(run: LiveRun, found: Found, now_s: float) -> Standing:
    """How the run stands at `now_s`."""
    answer, last = found.answer or {}, run.windows[-1] if run.windows else None
    slots = round(run.window_s / run.slot_s)
    return Standing(
        run.records.run,
        found,
        now_s,
        _last_s(run),
        answer.get("window", last.row.window if last else None),
        answer.get("slot", _slot(run, last, slots, found, now_s)),
        answer.get("slots", slots),
        bool(answer.get("paused", _paused(run, found))),
        tuple(_tenant(run, name, answer.get("tenants", {}).get(name)) for name in run.tenants),
        _units(run, answer),
        run.records.events[-LAST_EVENTS:],
    )


def _slot(
    run: LiveRun, last: LiveWindow | None, slots: int, found: Found, now_s: float
) -> int | None:
    if last is None or found.life in (Life.ENDED, Life.KILLED):
        return None
    return min(slots - 1, max(0, int((now_s - last.row.began_s) / run.slot_s)))


def _paused(run: LiveRun, found: Found) -> bool:
    there = found.life in (Life.RUNNING, Life.SILENT)
    return there and _last_done(run, (PAUSE, RESUME), None) == PAUSE


def _last_done(
    run: LiveRun, kinds: tuple[ActionKind, ActionKind], tenant: str | None
) -> str | None:
    """The last of these actions, which tells how it stands where nobody answers."""
    done = [each for each in run.records.actions if each.outcome == Outcome.DONE]
    said = [each.kind for each in done if each.kind in kinds and each.tenant == tenant]
    return said[-1] if said else None


def _last_s(run: LiveRun) -> float:
    """The newest moment in the records."""
    records = run.records
    moments = [records.run.began_s, records.run.ended_s or 0.0]
    moments += [each.at_s for each in records.events[-1:]]
    moments += [each.at_s for each in records.versions]
    moments += [each.ended_s or each.began_s for each in records.windows[-1:]]
    moments += [each.to_s or each.from_s for each in records.units]
    moments += [run.second_s(each) + each.span_s for each in records.seconds]
    return max(moments)


def _tenant(run: LiveRun, name: str, told: Mapping[str, Any] | None) -> TenantStanding:
    if told is not None:
        return TenantStanding(
            name,
            told.get("received", 0),
            told.get("in_time", 0),
            told.get("late", 0),
            told.get("dropped", 0),
            told.get("failed"),
            told.get("waiting"),
            len(told.get("workers", ())),
            told.get("accuracy"),
            told.get("version"),
            told.get("retraining"),
            told.get("progress"),
            bool(told.get("drained")),
        )
    return _recorded(run, name)


def _recorded(run: LiveRun, name: str) -> TenantStanding:
    """A tenant as the records last knew it."""
    seconds = [each for each in run.records.seconds if each.tenant == name]
    rows = [each for each in run.records.tenant_windows if each.tenant == name]
    open_units = [e for e in run.records.units if e.tenant == name and e.to_s is None]
    trains = any(each.state == "training" for each in open_units)
    accuracy, version = _model(run, name, rows)
    return TenantStanding(
        name,
        sum(each.received for each in seconds),
        sum(each.in_time or 0 for each in seconds),
        sum(each.late for each in seconds),
        sum(each.dropped for each in seconds),
        sum(each.failed for each in rows) if rows else None,
        None,
        sum(each.state == "ready" for each in open_units),
        accuracy,
        version,
        "running" if trains else None,
        None,
        _last_done(run, (DRAIN, UNDRAIN), name) == DRAIN,
    )


def _model(
    run: LiveRun, name: str, rows: list[TenantWindowRecord]
) -> tuple[float | None, int | None]:
    """Accuracy and version of the model that served last."""
    adopted = [each for each in run.records.versions if each.tenant == name and each.adopted]
    newest = max(adopted, key=lambda each: each.at_s, default=None)
    last = rows[-1] if rows else None
    if last is not None and (newest is None or newest.number == last.version):
        return last.accuracy_after, last.version
    return (newest.accuracy, newest.number) if newest else (None, None)


def _units(run: LiveRun, answer: Mapping[str, Any]) -> tuple[UnitStanding, ...]:
    rows = [each for each in run.records.units if each.to_s is None]
    since_s = {(each.start, each.gpcs, each.state): each.from_s for each in rows}
    if "units" in answer:
        found = [
            UnitStanding(
                each["start"],
                each["gpcs"],
                each["state"],
                each["task"],
                since_s.get((each["start"], each["gpcs"], each["state"])),
            )
            for each in answer["units"]
        ]
    else:
        found = [
            UnitStanding(
                each.start,
                each.gpcs,
                each.state,
                f"{each.tenant}/{each.task}" if each.tenant else None,
                each.from_s,
            )
            for each in rows
        ]
    return tuple(sorted(found, key=lambda each: (each.start is None, each.start or 0)))
