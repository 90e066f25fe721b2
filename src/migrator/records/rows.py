"""The rows of a run, simulated or live, and the SQLite tables that hold them.

Times are Unix time in seconds unless a name says otherwise. The row of a window is written
repeatedly while the window lasts.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from migrator.core.evidence import Evidence
from migrator.io.database import Schema

WINDOW_S, SLOT_S = 200.0, 1.0
"""Lengths assumed for runs that do not state them."""
_JSON = {"plan", "parts_s", "about", "blocks"}
"""Fields stored as JSON text."""


@dataclass(frozen=True)
class Record:
    """A row of a run. Written again, it replaces the row with the same key."""

    table: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()
    """The fields that identify a row within its run; empty: rows are never replaced."""


def key_of(record: Record) -> object:
    """What identifies a row within its run; unlike all others if it has no key."""
    if not record.keys:
        return object()
    return type(record), *(getattr(record, name) for name in record.keys)


@dataclass(frozen=True)
class RunRow:
    """One run: a simulation, or the daemon from its start to its end."""

    run: int
    began_s: float
    ended_s: float | None
    """None: it is running, or was killed."""
    scenario: str
    board: str
    driver: str
    policy: str
    seed: int
    pid: int
    about: Mapping[str, Any] = field(default_factory=dict)
    """Further facts: window_s, slot_s, tenants, url; of a simulation also fluid_goodput and
    reconfigurations; weights and floors if a tenant has any."""

    @property
    def window_s(self) -> float:
        return float(self.about.get("window_s") or WINDOW_S)

    @property
    def slot_s(self) -> float:
        return float(self.about.get("slot_s") or SLOT_S)

    @property
    def slots(self) -> int:
        return max(1, round(self.window_s / self.slot_s))

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants that the run began with, in its order; empty if it does not say so."""
        return tuple(name for name in self.about.get("tenants", ()) if isinstance(name, str))


@dataclass(frozen=True)
class WindowRecord(Record):
    """One window and its first plan."""

    table: ClassVar = "window"
    keys: ClassVar = ("window",)

    window: int
    began_s: float
    policy: str
    forecaster: str
    ended_s: float | None = None
    plan: Mapping[str, Any] | None = None
    """In the format of a plan file; None: the policy makes no plan file."""
    predicted_goodput: float | None = None
    """Of its first plan, with the gaps that no order of steps avoids."""
    plan_s: float | None = None
    """Planning time of its first plan, on the clock of the run; None: no plan arrived."""
    replans: int = 0
    """How often the plan changed within the window."""


@dataclass(frozen=True)
class TenantWindowRecord(Record):
    """What was measured of one tenant in one window."""

    table: ClassVar = "tenant_window"
    keys: ClassVar = ("window", "tenant")

    window: int
    tenant: str
    received: int = 0
    in_time: int = 0
    late: int = 0
    dropped: int = 0
    failed: int = 0
    goodput: float | None = None
    """In time and correct, by the labels of its answers; None: too few of them are labelled."""
    wrong: float | None = None
    labelled: int = 0
    """Answers whose label arrived."""
    while_reconfiguring: int = 0
    """Of the late and dropped: received while an instance of the tenant was not yet warm."""
    accuracy_before: float | None = None
    accuracy_after: float | None = None
    accuracy_estimated: float | None = None
    version: int | None = None
    """Of the model that served at the end of the window."""
    evidence: str = Evidence.NONE
    """What `accuracy_after` rests on."""


@dataclass(frozen=True)
class SecondRecord(Record):
    """One tenant in one second; old seconds are stored several to a row."""

    table: ClassVar = "second"
    keys: ClassVar = ("tenant", "second")

    tenant: str
    second: int
    """The first second of the row, counted from the beginning of the run's first window."""
    received: int = 0
    in_time: int | None = 0
    """None: known per window only, as in a simulation."""
    late: int = 0
    dropped: int = 0
    forecast_mean: float | None = None
    forecast_low: float | None = None
    forecast_high: float | None = None
    span_s: int = 1
    """Seconds in this row: counts are sums, forecasts are means."""
    failed: int = 0
    wrong: float | None = None
    """Of those in time, estimated from the labels known then; None: unknown."""
    reconfiguring: int = 0
    """As `TenantWindowRecord.while_reconfiguring`."""


@dataclass(frozen=True)
class UnitRecord(Record):
    """The state of an instance or share from one moment to another."""

    table: ClassVar = "unit"
    keys: ClassVar = ("unit", "from_s")

    unit: str
    """Place and a number: an instance created anew at the same place is another unit."""
    from_s: float
    start: int | None
    """First memory slice; None: a share, which has no place."""
    gpcs: float
    tenant: str | None
    task: str
    """inference, retraining, or empty."""
    state: str
    to_s: float | None = None
    parts_s: Mapping[str, float] = field(default_factory=dict)
    """Parts of its start: create_s, load_s, context_s, copy_s, first_s, warm_s; and late_s, for
    how long the plan had waited for it."""


@dataclass(frozen=True)
class VersionRecord(Record):
    """A version of a tenant's model, adopted or refused."""

    table: ClassVar = "version"
    keys: ClassVar = ("tenant", "number", "at_s")

    tenant: str
    number: int
    at_s: float
    accuracy: float | None
    adopted: bool
    why: str


@dataclass(frozen=True)
class EventRecord(Record):
    """Something an operator may want to know."""

    table: ClassVar = "event"

    at_s: float
    kind: str
    words: str


@dataclass(frozen=True)
class PlanRecord(Record):
    """A decision of the policy: at the beginning of a window, or later within it."""

    table: ClassVar = "plan"
    keys: ClassVar = ("window", "at_s")

    window: int
    at_s: float
    slot: int
    """The slot of the window from which it holds."""
    reason: str
    predicted_goodput: float | None = None
    """Of the rest of the window; None: the policy predicts nothing."""
    plan_s: float | None = None
    """Planning time."""
    gap: float | None = None
    """How much better a plan could be at most, by the plan's certificate."""
    blocks: tuple[Mapping[str, Any], ...] = ()
    """The instances and shares of the plan, as `runs.py` describes."""


@dataclass(frozen=True)
class ActionRecord(Record):
    """What an operator requested, and whether it was done."""

    table: ClassVar = "action"

    at_s: float
    kind: str
    tenant: str | None
    who: str
    """page, cli or api."""
    outcome: str
    """done, refused or failed."""
    words: str


@dataclass(frozen=True)
class RetrainingRecord(Record):
    """Progress of a tenant's retraining in a window."""

    table: ClassVar = "retraining"
    keys: ClassVar = ("window", "tenant")

    window: int
    tenant: str
    at_s: float
    phase: str
    progress: float
    """From 0 to 1."""
    accuracy_estimated: float | None = None
    planned_s: float | None = None
    """Expected duration without the start of its process, once it has ended."""
    taken_s: float | None = None
    """Duration without the start of its process."""
    parts_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of its parts, with the start and the handing over (`learn.retraining`)."""
    reason: str = ""
    """Why the tenant is not being retrained (`core.not_retrained`); empty if it is or was."""
    why: str = ""
    """The same as a sentence."""
    configuration: str = ""
    """The name of its configuration, which may change until it starts; empty for a tenant's only
    one."""

    @property
    def subject(self) -> str:
        """The tenant, and the configuration if it has several."""
        return f"{self.tenant} as {self.configuration}" if self.configuration else self.tenant


TABLES: tuple[type[Record], ...] = (
    *(WindowRecord, TenantWindowRecord, SecondRecord, UnitRecord, VersionRecord, EventRecord),
    *(PlanRecord, ActionRecord, RetrainingRecord),
)


@dataclass(frozen=True)
class RunRecords:
    """Rows of a run, oldest first. The fields are in the order of `TABLES`."""

    run: RunRow
    windows: tuple[WindowRecord, ...] = ()
    tenant_windows: tuple[TenantWindowRecord, ...] = ()
    seconds: tuple[SecondRecord, ...] = ()
    units: tuple[UnitRecord, ...] = ()
    versions: tuple[VersionRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    plans: tuple[PlanRecord, ...] = ()
    actions: tuple[ActionRecord, ...] = ()
    retrainings: tuple[RetrainingRecord, ...] = ()


R = TypeVar("R", bound=Record)


def column_names(kind: type[Record] | type[RunRow]) -> tuple[str, ...]:
    """The columns of a table."""
    return tuple(field.name for field in fields(kind))


def _create_table(kind: type[Record]) -> str:
    """The statement for a table; columns have no types, since the writer guarantees them."""
    columns = ["run INTEGER", *column_names(kind)]
    if kind.keys:
        columns.append(f"PRIMARY KEY ({', '.join(('run', *kind.keys))})")
    return f"CREATE TABLE {kind.table} ({', '.join(columns)})"


SCHEMA = Schema(
    holds="records",
    application_id=0x4D495245,
    version=3,
    statements=(
        f"CREATE TABLE run ({', '.join(('run INTEGER PRIMARY KEY', *column_names(RunRow)[1:]))})",
        *map(_create_table, TABLES),
    ),
    check="quick_check",
)


def insert_into(kind: type[Record]) -> str:
    """The statement that writes or replaces a row."""
    names = ("run", *column_names(kind))
    marks = ", ".join("?" * len(names))
    return f"INSERT OR REPLACE INTO {kind.table} ({', '.join(names)}) VALUES ({marks})"


def values_of(record: Record) -> tuple[object, ...]:
    """The values of a row in the order of its columns, without its run."""
    named = {name: getattr(record, name) for name in column_names(type(record))}
    return tuple(
        json.dumps(value) if name in _JSON and value is not None else value
        for name, value in named.items()
    )


def read_rows(
    connection: sqlite3.Connection,
    run: int,
    kind: type[R],
    where: str = "1",
    *given: object,
    without: tuple[str, ...] = (),
) -> tuple[R, ...]:
    """Rows of a run ordered by key.

    Columns named in `without` are not read and get their default.
    """
    names = tuple(name for name in column_names(kind) if name not in without)
    order = ", ".join(kind.keys) or "rowid"
    query = (
        f"SELECT {', '.join(names)} FROM {kind.table} WHERE run = ? AND {where} ORDER BY {order}"
    )
    cursor = connection.execute(query, (run, *given))
    return tuple(kind(**_fields(names, row)) for row in cursor)


Conditions = Mapping[type[Record], tuple[Any, ...]]
"""Per kind of row an SQL condition and its values; empty: all rows."""


def read_run(connection: sqlite3.Connection, row: RunRow, wanted: Conditions) -> RunRecords:
    """The rows of a run that `wanted` names."""
    tables: list[Any] = [
        read_rows(connection, row.run, kind, *wanted[kind]) if kind in wanted else ()
        for kind in TABLES
    ]
    return RunRecords(row, *tables)


def read_run_rows(connection: sqlite3.Connection) -> tuple[RunRow, ...]:
    """Every run of the file, oldest first."""
    return _select_runs(connection, "1 ORDER BY run")


def find_run(connection: sqlite3.Connection, run: int | None = None) -> RunRow | None:
    """The run of that number, by default the newest; None: the file has no such run."""
    if run is None:
        rows = _select_runs(connection, "1 ORDER BY run DESC LIMIT 1")
    else:
        rows = _select_runs(connection, "run = ?", run)
    return rows[0] if rows else None


def _select_runs(connection: sqlite3.Connection, where: str, *given: object) -> tuple[RunRow, ...]:
    names = column_names(RunRow)
    rows = connection.execute(f"SELECT {', '.join(names)} FROM run WHERE {where}", given)
    return tuple(RunRow(**_fields(names, row)) for row in rows)


def _fields(names: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    named = dict(zip(names, row, strict=True))
    for name in _JSON & named.keys():
        named[name] = None if named[name] is None else json.loads(named[name])
    if "adopted" in named:
        named["adopted"] = bool(named["adopted"])
    if "blocks" in named:
        named["blocks"] = tuple(named["blocks"] or ())
    return named
