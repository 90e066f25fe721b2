"""The current state of a live run: from its records, and from its daemon if that replies.

`status` and `top` show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from migrator.core.action import ActionKind, Outcome
from migrator.core.evidence import Accuracy, Evidence
from migrator.core.outcome import Tally
from migrator.records.recent_traffic import RateMeter, RecentTraffic, recorded_traffic
from migrator.records.rows import EventRecord, RunRow
from migrator.records.runs import planned_blocks
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
    pace: RecentTraffic = field(default_factory=RecentTraffic)
    reason: str = ""
    """Why it is not being retrained (`core.not_retrained`); empty if it is, or was just now."""
    why: str = ""
    """The same as a sentence."""
    configuration: str = ""
    """Of the retraining; empty for a tenant's only one."""

    @property
    def goodput_rps(self) -> float | None:
        """Answers in time per second, times their accuracy by this window's labels; None if too
        few are labelled."""
        accuracy = self.accuracy
        if self.pace.in_time_rps is None or accuracy is None:
            return None
        if accuracy.evidence is not Evidence.ANSWERS:
            return None
        return self.pace.in_time_rps * accuracy.value


@dataclass(frozen=True)
class CurrentUnit:
    """An instance or share, held or planned."""

    start: int | None
    """None: a share."""
    gpcs: float
    tenant: str | None
    kind: str
    """inference, retraining, or empty."""
    state: str
    """As the executor has it; "planned" for those of a plan."""
    since_s: float | None = None

    @property
    def task(self) -> str | None:
        """Tenant and kind, as plans write them."""
        return f"{self.tenant}/{self.kind}" if self.tenant else None


@dataclass(frozen=True)
class UnitUsage:
    """What the driver reports of an instance, or of the whole GPU."""

    start: int | None
    """None: the whole GPU."""
    busy: float | None
    used_mib: int
    total_mib: int


@dataclass(frozen=True)
class CurrentRun:
    """A run as it is now."""

    now_s: float
    run: RunRow | None
    """None: only the daemon is known, no records."""
    probe: DaemonProbe
    scenario: str
    board: str
    driver: str
    policy: str
    last_s: float
    """When anything was last recorded."""
    window: int | None
    slot: int | None
    slots: int
    paused: bool
    """Whether an operator paused reconfiguration; a restart of the daemon ends a pause."""
    tenants: tuple[CurrentTenant, ...]
    planned: tuple[CurrentUnit, ...] | None
    """By the plan for this slot; None: unknown."""
    held: tuple[CurrentUnit, ...]
    events: tuple[EventRecord, ...]
    usage: tuple[UnitUsage, ...] = ()
    """Empty where there is no GPU, or another machine has it."""
    files: str = ""
    """Why the daemon cannot write labels or records; "" if it can."""

    @property
    def distinct_events(self) -> tuple[EventRecord, ...]:
        """The events without reasons for a plan that the next event repeats."""
        following = (*(event.words for event in self.events[1:]), "")
        return tuple(
            event
            for event, after in zip(self.events, following, strict=False)
            if event.kind != "replan" or event.words not in after
        )


def current_run(
    rows: RecentRows | None, probe: DaemonProbe, now_s: float, meter: RateMeter | None = None
) -> CurrentRun:
    """The state at `now_s`; without `rows` all is as the daemon replied."""
    reply, run = probe.reply or {}, rows.run if rows is not None else None
    if rows is None:
        one_slot = {"window_s": 1.0, "slot_s": 1.0}
        unknown = RunRow(0, now_s, None, "?", "?", "?", "?", 0, 0, one_slot)
        rows = RecentRows(unknown, last_s=now_s)
    facts: dict[str, Any] = {
        name: str(reply.get(name, getattr(rows.run, name)))
        for name in ("scenario", "board", "driver", "policy")
    }
    window, slot, slots = _position(rows, probe, now_s)
    return CurrentRun(
        now_s=now_s,
        run=run,
        probe=probe,
        **facts,
        last_s=rows.last_s,
        window=window,
        slot=slot,
        slots=slots,
        paused=bool(reply.get("paused", _is_paused(rows, probe))),
        tenants=tuple(_tenant(name, rows, reply, meter) for name in _names(rows, reply)),
        planned=_planned(rows, window, slot, slots),
        held=_held(rows, reply),
        events=rows.events,
        files=str(reply.get("files", "")),
    )


def _position(
    rows: RecentRows, probe: DaemonProbe, now_s: float
) -> tuple[int | None, int | None, int]:
    """Window, slot, slots of a window."""
    reply, slots, window, slot = probe.reply or {}, rows.run.slots, None, None
    if rows.window is not None:
        window = rows.window.window
        if probe.state not in (DaemonState.ENDED, DaemonState.KILLED):
            slot = int((now_s - rows.window.began_s) / rows.run.slot_s)
            slot = min(slots - 1, max(0, slot))
    return reply.get("window", window), reply.get("slot", slot), reply.get("slots", slots)


def _names(rows: RecentRows, reply: Mapping[str, Any]) -> tuple[str, ...]:
    recorded = {second.tenant for second in rows.seconds} | {
        tenant_window.tenant for tenant_window in rows.tenant_windows
    }
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


def _tenant(
    name: str, rows: RecentRows, reply: Mapping[str, Any], meter: RateMeter | None
) -> CurrentTenant:
    recorded = _recorded(name, rows)
    replied = reply.get("tenants", {}).get(name)
    if replied is None:
        return recorded
    pace = RecentTraffic() if meter is None else meter.pace(name)
    if pace.rate_rps is None:  # after one reply there is no rate yet: take that of the records
        pace = replace(recorded.pace, p50_ms=pace.p50_ms, p99_ms=pace.p99_ms)
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
        pace,
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
        recorded_traffic([second for second in rows.seconds if second.tenant == name]),
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


def _planned(
    rows: RecentRows, window: int | None, slot: int | None, slots: int
) -> tuple[CurrentUnit, ...] | None:
    if rows.window is None or rows.window.window != window or slot is None:
        return None
    blocks = planned_blocks(rows.window, rows.plans, slots)
    if not blocks:
        return None
    now = [block for block in blocks if block["from"] <= slot < block["until"]]
    return _ordered(
        [_unit(block["start"], block["gpcs"], block["task"], "planned") for block in now]
    )


def _held(rows: RecentRows, reply: Mapping[str, Any]) -> tuple[CurrentUnit, ...]:
    if "units" not in reply:
        return _ordered(
            [
                CurrentUnit(unit.start, unit.gpcs, unit.tenant, unit.task, unit.state, unit.from_s)
                for unit in rows.units
            ]
        )
    since_s = {(unit.start, unit.gpcs, unit.state): unit.from_s for unit in rows.units}
    held = [(unit["start"], unit["gpcs"], unit["task"], unit["state"]) for unit in reply["units"]]
    return _ordered(
        [_unit(*holding, since_s.get((holding[0], holding[1], holding[3]))) for holding in held]
    )


def _unit(
    start: int | None, gpcs: float, task: str | None, state: str, since_s: float | None = None
) -> CurrentUnit:
    tenant, _, kind = (task or "").rpartition("/")
    return CurrentUnit(start, gpcs, tenant or None, kind, state, since_s)


def _ordered(units: Sequence[CurrentUnit]) -> tuple[CurrentUnit, ...]:
    return tuple(
        sorted(units, key=lambda unit: (unit.start is None, unit.start or 0, unit.tenant or ""))
    )
