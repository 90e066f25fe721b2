"""The current state of a live run: from its records, and from its daemon if that replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from migrator.core.action import ActionKind, Outcome
from migrator.core.evidence import Accuracy, Evidence
from migrator.core.outcome import Tally
from migrator.records.rows import EventRecord, RunRow
from migrator.records.store import RecentRows


class DaemonState(StrEnum):
    """Whether the daemon of a run is there."""

    RUNNING = "running"
    SILENT = "silent"
    """Its process exists and does not reply."""
    ENDED = "ended"
    KILLED = "killed"
    """It did not record its end, and its process is gone."""


@dataclass(frozen=True)
class DaemonProbe:
    """What was found out about a daemon."""

    state: DaemonState
    why: str = ""
    """Why there is no reply."""
    reply: Mapping[str, Any] | None = None
    """Of GET /admin/status."""


def daemon_url(run: RunRow) -> str | None:
    """Where the daemon of a run listens; None: it has not said so yet."""
    url = run.about.get("url")
    return url if isinstance(url, str) else None


@dataclass(frozen=True)
class CurrentTenant:
    """One tenant now; None: unknown."""

    name: str
    tally: Tally = field(default_factory=Tally)
    """Since the run began; `unjudged` are those in time."""
    waiting: int | None = None
    workers: int = 0
    accuracy: Accuracy | None = None
    version: int | None = None
    retraining: str | None = None
    progress: float | None = None
    drained: bool = False
    reason: str = ""
    """Why it is not being retrained (`core.not_retrained`); empty if it is, or was just now."""
    why: str = ""
    """The same as a sentence."""
    configuration: str = ""
    """Of the retraining; empty for a tenant's only one."""


@dataclass(frozen=True)
class CurrentUnit:
    """An instance or share."""

    start: int | None
    """None: a share."""
    gpcs: float
    tenant: str | None
    kind: str
    """inference, retraining, or empty."""
    state: str
    """As the executor has it."""
    since_s: float | None = None

    @property
    def task(self) -> str | None:
        """Tenant and kind, as plans write them."""
        return f"{self.tenant}/{self.kind}" if self.tenant else None


@dataclass(frozen=True)
class CurrentRun:
    """A run as it is now."""

    now_s: float
    run: RunRow
    probe: DaemonProbe
    last_s: float
    """When anything was last recorded."""
    window: int | None
    slot: int | None
    slots: int
    paused: bool
    """Whether an operator paused reconfiguration; a restart of the daemon ends a pause."""
    tenants: tuple[CurrentTenant, ...]
    held: tuple[CurrentUnit, ...]
    events: tuple[EventRecord, ...]
    files: str = ""
    """Why the daemon cannot write labels or records; "" if it can."""


def current_run(rows: RecentRows, probe: DaemonProbe, now_s: float) -> CurrentRun:
    """The state at `now_s`."""
    reply, run = probe.reply or {}, rows.run
    window = slot = None
    if rows.window is not None:
        window = rows.window.window
        if probe.state not in (DaemonState.ENDED, DaemonState.KILLED):
            slot = int((now_s - rows.window.began_s) / run.slot_s)
            slot = min(run.slots - 1, max(0, slot))
    return CurrentRun(
        now_s=now_s,
        run=run,
        probe=probe,
        last_s=rows.last_s,
        window=reply.get("window", window),
        slot=reply.get("slot", slot),
        slots=reply.get("slots", run.slots),
        paused=bool(reply.get("paused", _is_paused(rows, probe))),
        tenants=tuple(_tenant(name, rows, reply) for name in _names(rows, reply)),
        held=_held(rows, reply),
        events=rows.events,
        files=str(reply.get("files", "")),
    )


def _names(rows: RecentRows, reply: Mapping[str, Any]) -> tuple[str, ...]:
    recorded = {tenant_window.tenant for tenant_window in rows.tenant_windows}
    recorded |= {unit.tenant for unit in rows.units if unit.tenant} | rows.totals.keys()
    return tuple(dict.fromkeys((*rows.run.tenants, *reply.get("tenants", {}), *sorted(recorded))))


def _is_paused(rows: RecentRows, probe: DaemonProbe) -> bool:
    may_run = probe.state in (DaemonState.RUNNING, DaemonState.SILENT)
    actions = (ActionKind.PAUSE, ActionKind.RESUME)
    return may_run and _last_action(rows, actions, None) == ActionKind.PAUSE


def _last_action(
    rows: RecentRows, kinds: tuple[ActionKind, ActionKind], tenant: str | None
) -> str | None:
    """The last of these actions that was done."""
    done = [action for action in rows.actions if action.outcome == Outcome.DONE]
    kinds_done = [
        action.kind for action in done if action.kind in kinds and action.tenant == tenant
    ]
    return kinds_done[-1] if kinds_done else None


def _tenant(name: str, rows: RecentRows, reply: Mapping[str, Any]) -> CurrentTenant:
    replied = reply.get("tenants", {}).get(name)
    if replied is None:
        return _recorded(name, rows)
    return CurrentTenant(
        name,
        Tally(
            received=replied.get("received", 0),
            unjudged=replied.get("in_time", 0),
            late=replied.get("late", 0),
            dropped=replied.get("dropped", 0),
            failed=replied.get("failed", 0),
        ),
        replied.get("waiting"),
        len(replied.get("workers", ())),
        _accuracy(replied.get("accuracy"), replied.get("evidence")),
        replied.get("version"),
        replied.get("retraining"),
        replied.get("progress"),
        bool(replied.get("drained")),
        str(replied.get("reason", "")),
        str(replied.get("why", "")),
        str(replied.get("configuration", "")),
    )


def _recorded(name: str, rows: RecentRows) -> CurrentTenant:
    units = [unit for unit in rows.units if unit.tenant == name]
    job = next((retraining for retraining in rows.retrainings if retraining.tenant == name), None)
    trains = any(unit.state == "training" for unit in units)
    accuracy, version = _model(name, rows)
    drained = _last_action(rows, (ActionKind.DRAIN, ActionKind.UNDRAIN), name) == ActionKind.DRAIN
    return CurrentTenant(
        name,
        rows.totals.get(name, Tally()),
        None,
        sum(unit.state == "ready" for unit in units),
        accuracy,
        version,
        job.phase if job else "running" if trains else None,
        job.progress if job else None,
        drained,
        job.reason if job else "",
        job.why if job else "",
        job.configuration if job else "",
    )


def _accuracy(value: float | None, evidence: str | None) -> Accuracy | None:
    return None if value is None else Accuracy(value, Evidence(evidence or Evidence.NONE))


def _model(name: str, rows: RecentRows) -> tuple[Accuracy | None, int | None]:
    newest = next((version for version in rows.versions if version.tenant == name), None)
    last = next((window for window in rows.tenant_windows if window.tenant == name), None)
    if last is not None and (newest is None or newest.number == last.version):
        return _accuracy(last.accuracy_after, last.evidence), last.version
    if newest is None:
        return None, None
    return _accuracy(newest.accuracy, Evidence.EARLIER), newest.number


def _held(rows: RecentRows, reply: Mapping[str, Any]) -> tuple[CurrentUnit, ...]:
    recorded = [
        CurrentUnit(unit.start, unit.gpcs, unit.tenant, unit.task, unit.state, unit.from_s)
        for unit in rows.units
    ]
    if "units" not in reply:
        return _ordered(recorded)
    since_s = {(unit.start, unit.gpcs, unit.state): unit.since_s for unit in recorded}
    held = []
    for unit in reply["units"]:
        tenant, _, kind = (unit["task"] or "").rpartition("/")
        place = (unit["start"], unit["gpcs"], unit["state"])
        held.append(
            CurrentUnit(*place[:2], tenant or None, kind, unit["state"], since_s.get(place))
        )
    return _ordered(held)


def _ordered(units: Sequence[CurrentUnit]) -> tuple[CurrentUnit, ...]:
    return tuple(
        sorted(units, key=lambda unit: (unit.start is None, unit.start or 0, unit.tenant or ""))
    )
