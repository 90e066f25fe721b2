"""The current state of a live run: from its records, and from its daemon if that replies.

`status` and `top` show it. `read_recent` reads only the newest rows, so its time does not grow
with the length of the run, except for the totals that only `status` needs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from migrator.core.action import ActionKind, Outcome
from migrator.core.errors import InputError
from migrator.core.outcome import Tally
from migrator.io.database import reading
from migrator.records.pace import RATE_S, Pace, RateMeter, recorded_pace
from migrator.records.rows import (
    LAYOUT,
    ActionRecord,
    EventRecord,
    PlanRecord,
    RetrainingRecord,
    RunRecords,
    RunRow,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
    columns_of,
    find_run,
    read_run,
    read_run_rows,
)
from migrator.records.runs import planned_blocks

_EVENTS = 24
"""The newest events that are read."""
NEWEST_EVENTS = "rowid IN (SELECT rowid FROM event WHERE run = ? ORDER BY rowid DESC LIMIT ?)"
NEWEST_ADOPTED = (
    "(tenant, at_s) IN (SELECT tenant, max(at_s) FROM version WHERE run = ? AND adopted "
    "GROUP BY tenant)"
)
"""The version of every tenant that serves."""


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
    """Where the daemon of a run listens; None: not recorded, or any free port."""
    if isinstance(url := run.about.get("url"), str):
        return url
    host, port = run.about.get("host"), run.about.get("port")
    if not isinstance(host, str) or not isinstance(port, int) or not port:
        return None
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


@dataclass(frozen=True)
class RecentRows(RunRecords):
    """The newest rows of a run.

    The current window with its plans and retrainings, the last seconds, the units that exist now,
    of every tenant its last window that ended and its newest model.
    """

    is_newest: bool = True
    """Whether it is the last run of its file."""
    totals: Mapping[str, Tally] = field(default_factory=dict)
    """Per tenant all requests of the run, if asked for; `unjudged` are those in time."""
    last_s: float = 0.0
    """When anything was last recorded, if asked for."""

    @property
    def window(self) -> WindowRecord | None:
        """The current window; None: it has not begun."""
        return self.windows[-1] if self.windows else None


def read_recent(path: Path, run: int | None = None, *, totals: bool = False) -> RecentRows:
    """The newest rows of a run, by default of the newest run; also while it is being written."""
    with reading(path, LAYOUT) as connection:
        row, newest = find_run(connection, run), find_run(connection)
        if row is None or newest is None:
            known = ", ".join(str(each.run) for each in read_run_rows(connection))
            if not known:
                raise InputError(f"{path}: it has no run yet; start `migrator serve SCENARIO`")
            raise InputError(f"{path}: there is no run {run}; give one of {known}")
        number = row.run
        last = "window = (SELECT max(window) FROM {} WHERE run = ?)"
        of_window = (last.format("window"), number)
        found = read_run(
            connection,
            row,
            {
                WindowRecord: of_window,
                PlanRecord: of_window,
                RetrainingRecord: of_window,
                TenantWindowRecord: (last.format("tenant_window"), number),
                SecondRecord: (
                    "second > (SELECT max(second) FROM second WHERE run = ?) - ?",
                    *(number, RATE_S),
                ),
                UnitRecord: ("to_s IS NULL",),
                VersionRecord: (f"adopted AND {NEWEST_ADOPTED}", number),
                EventRecord: (NEWEST_EVENTS, number, _EVENTS),
                ActionRecord: (),
            },
        )
        return RecentRows(
            **vars(found),
            is_newest=row.run == newest.run,
            totals=_totals(connection, number) if totals else {},
            last_s=_last_s(connection, row) if totals else 0.0,
        )


def _totals(connection: sqlite3.Connection, run: int) -> dict[str, Tally]:
    failed = "sum(failed)" if "failed" in columns_of(connection, SecondRecord) else "0"
    query = (
        "SELECT tenant, sum(received), sum(coalesce(in_time, 0)), sum(late), sum(dropped), "
        f"{failed} FROM second WHERE run = ? GROUP BY tenant"
    )
    return {
        name: Tally(received=received, unjudged=in_time, late=late, dropped=dropped, failed=lost)
        for name, received, in_time, late, dropped, lost in connection.execute(query, (run,))
    }


def _last_s(connection: sqlite3.Connection, run: RunRow) -> float:
    def newest(expression: str, table: str) -> float:
        query = f"SELECT max({expression}) FROM {table} WHERE run = ?"
        return float(connection.execute(query, (run.run,)).fetchone()[0] or 0.0)

    first = "SELECT min(began_s) FROM window WHERE run = ?"
    zero_s = connection.execute(first, (run.run,)).fetchone()[0] or run.began_s
    return max(
        run.began_s,
        run.ended_s or 0.0,
        newest("at_s", "event"),
        newest("at_s", "version"),
        newest("coalesce(ended_s, began_s)", "window"),
        newest("coalesce(to_s, from_s)", "unit"),
        zero_s + newest("second + span_s", "second"),
    )


@dataclass(frozen=True)
class TenantStanding:
    """One tenant now; None: unknown."""

    name: str
    tally: Tally = field(default_factory=Tally)
    """Since the run began; `unjudged` are those in time."""
    waiting: int | None = None
    workers: int = 0
    accuracy: float | None = None
    version: int | None = None
    retraining: str | None = None
    progress: float | None = None
    drained: bool = False
    pace: Pace = field(default_factory=Pace)

    @property
    def goodput_rps(self) -> float | None:
        """Answers in time per second, times the accuracy of the model."""
        if self.pace.in_time_rps is None or self.accuracy is None:
            return None
        return self.pace.in_time_rps * self.accuracy


@dataclass(frozen=True)
class UnitStanding:
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
class Standing:
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
    tenants: tuple[TenantStanding, ...]
    planned: tuple[UnitStanding, ...] | None
    """By the plan for this slot; None: unknown."""
    held: tuple[UnitStanding, ...]
    events: tuple[EventRecord, ...]
    usage: tuple[UnitUsage, ...] = ()
    """Empty where there is no GPU, or another machine has it."""

    @property
    def distinct_events(self) -> tuple[EventRecord, ...]:
        """The events without reasons for a plan that the next event repeats."""
        following = (*(each.words for each in self.events[1:]), "")
        return tuple(
            each
            for each, after in zip(self.events, following, strict=False)
            if each.kind != "replan" or each.words not in after
        )


def standing(
    rows: RecentRows | None, probe: DaemonProbe, now_s: float, meter: RateMeter | None = None
) -> Standing:
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
    return Standing(
        now_s=now_s,
        run=run,
        probe=probe,
        **facts,
        last_s=rows.last_s,
        window=window,
        slot=slot,
        slots=slots,
        paused=bool(reply.get("paused", _is_paused(rows, probe))),
        tenants=tuple(_tenant(each, rows, reply, meter) for each in _names(rows, reply)),
        planned=_planned(rows, window, slot, slots),
        held=_held(rows, reply),
        events=rows.events,
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
    known = {each.tenant for each in rows.seconds} | {e.tenant for e in rows.tenant_windows}
    known |= {each.tenant for each in rows.units if each.tenant} | rows.totals.keys()
    return tuple(dict.fromkeys((*rows.run.tenants, *reply.get("tenants", {}), *sorted(known))))


def _is_paused(rows: RecentRows, probe: DaemonProbe) -> bool:
    there = probe.state in (DaemonState.RUNNING, DaemonState.SILENT)
    actions = (ActionKind.PAUSE, ActionKind.RESUME)
    return there and _last_action(rows, actions, None) == ActionKind.PAUSE


def _last_action(
    rows: RecentRows, kinds: tuple[ActionKind, ActionKind], tenant: str | None
) -> str | None:
    """The last of these actions that was done."""
    done = [each for each in rows.actions if each.outcome == Outcome.DONE]
    found = [each.kind for each in done if each.kind in kinds and each.tenant == tenant]
    return found[-1] if found else None


def _tenant(
    name: str, rows: RecentRows, reply: Mapping[str, Any], meter: RateMeter | None
) -> TenantStanding:
    known = _recorded(name, rows)
    replied = reply.get("tenants", {}).get(name)
    if replied is None:
        return known
    pace = Pace() if meter is None else meter.pace(name)
    if pace.rate_rps is None:  # after one reply there is no rate yet: take that of the records
        pace = replace(known.pace, p50_ms=pace.p50_ms, p99_ms=pace.p99_ms)
    return TenantStanding(
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
        replied.get("accuracy"),
        replied.get("version"),
        replied.get("retraining"),
        replied.get("progress"),
        bool(replied.get("drained")),
        pace,
    )


def _recorded(name: str, rows: RecentRows) -> TenantStanding:
    units = [each for each in rows.units if each.tenant == name]
    job = next((each for each in rows.retrainings if each.tenant == name), None)
    trains = any(each.state == "training" for each in units)
    accuracy, version = _model(name, rows)
    drained = _last_action(rows, (ActionKind.DRAIN, ActionKind.UNDRAIN), name) == ActionKind.DRAIN
    return TenantStanding(
        name,
        rows.totals.get(name, Tally()),
        None,
        sum(each.state == "ready" for each in units),
        accuracy,
        version,
        job.phase if job else "running" if trains else None,
        job.progress if job else None,
        drained,
        recorded_pace([each for each in rows.seconds if each.tenant == name]),
    )


def _model(name: str, rows: RecentRows) -> tuple[float | None, int | None]:
    newest = next((each for each in rows.versions if each.tenant == name), None)
    last = next((each for each in rows.tenant_windows if each.tenant == name), None)
    if last is not None and (newest is None or newest.number == last.version):
        return last.accuracy_after, last.version
    return (newest.accuracy, newest.number) if newest else (None, None)


def _planned(
    rows: RecentRows, window: int | None, slot: int | None, slots: int
) -> tuple[UnitStanding, ...] | None:
    if rows.window is None or rows.window.window != window or slot is None:
        return None
    blocks = planned_blocks(rows.window, rows.plans, slots)
    if not blocks:
        return None
    now = [each for each in blocks if each["from"] <= slot < each["until"]]
    return _ordered([_unit(e["start"], e["gpcs"], e["task"], "planned") for e in now])


def _held(rows: RecentRows, reply: Mapping[str, Any]) -> tuple[UnitStanding, ...]:
    if "units" not in reply:
        return _ordered(
            [UnitStanding(e.start, e.gpcs, e.tenant, e.task, e.state, e.from_s) for e in rows.units]
        )
    since_s = {(each.start, each.gpcs, each.state): each.from_s for each in rows.units}
    held = [(each["start"], each["gpcs"], each["task"], each["state"]) for each in reply["units"]]
    return _ordered([_unit(*each, since_s.get((each[0], each[1], each[3]))) for each in held])


def _unit(
    start: int | None, gpcs: float, task: str | None, state: str, since_s: float | None = None
) -> UnitStanding:
    tenant, _, kind = (task or "").rpartition("/")
    return UnitStanding(start, gpcs, tenant or None, kind, state, since_s)


def _ordered(units: Sequence[UnitStanding]) -> tuple[UnitStanding, ...]:
    return tuple(sorted(units, key=lambda e: (e.start is None, e.start or 0, e.tenant or "")))
