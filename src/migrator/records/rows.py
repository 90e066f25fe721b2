"""What is written down of a live run, row by row: the vocabulary of `records`.

Moments are Unix time in seconds unless a name says otherwise. A row is known by its first fields
(`KEYS`): written again it replaces what was there, so a window's row can be written as it goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RunRow:
    """One life of the daemon."""

    run: int
    began_s: float
    ended_s: float | None
    """None: it still runs, or was killed."""
    scenario: str
    board: str
    driver: str
    policy: str
    seed: int
    pid: int
    about: Mapping[str, Any] = field(default_factory=dict)
    """Whatever a report wants to know besides."""


@dataclass(frozen=True)
class WindowRecord:
    """One window: what was planned."""

    window: int
    began_s: float
    policy: str
    forecaster: str
    ended_s: float | None = None
    plan: Mapping[str, Any] | None = None
    """As a plan file; None: nothing was planned."""
    predicted_goodput: float | None = None
    plan_s: float | None = None
    """What deciding took; None: no decision came."""
    replans: int = 0


@dataclass(frozen=True)
class TenantWindowRecord:
    """One tenant in one window: what was measured."""

    window: int
    tenant: str
    received: int = 0
    in_time: int = 0
    late: int = 0
    dropped: int = 0
    failed: int = 0
    goodput: float = 0.0
    """In time and correct, as far as labels tell."""
    wrong: float = 0.0
    labelled: int = 0
    """Answers whose label came."""
    while_reconfiguring: int = 0
    """Of the late and dropped: those that came while an instance of theirs was not yet warm."""
    accuracy_before: float | None = None
    accuracy_after: float | None = None
    accuracy_estimated: float | None = None
    version: int | None = None
    """Of the model that served at the window's end."""


@dataclass(frozen=True)
class SecondRecord:
    """One tenant in one second, or in a few of them once they are old."""

    tenant: str
    second: int
    """The first, counted from the begin of the run's first window."""
    received: int = 0
    in_time: int | None = 0
    """None: what became of them is only known by the window, as in a simulation."""
    late: int = 0
    dropped: int = 0
    forecast_mean: float | None = None
    forecast_low: float | None = None
    forecast_high: float | None = None
    span_s: int = 1
    """So many seconds are counted together; forecasts are their means."""
    failed: int = 0
    wrong: float | None = None
    """Of those in time, as far as labels tell by then; None: nobody knows."""
    reconfiguring: int = 0
    """Of the late and dropped: those that came while an instance of theirs was not yet warm."""


@dataclass(frozen=True)
class UnitRecord:
    """What an instance or share was from one moment to another."""

    unit: str
    """Tells the lives of a place apart."""
    from_s: float
    start: int | None
    gpcs: float
    tenant: str | None
    task: str
    """inference, retraining, or nothing while it is made, removed or spare."""
    state: str
    to_s: float | None = None
    parts_s: Mapping[str, float] = field(default_factory=dict)
    """Of its overhead: create_s, context_s, copy_s, first_s and so on."""


@dataclass(frozen=True)
class VersionRecord:
    """A version of a tenant's model, adopted or refused."""

    tenant: str
    number: int
    at_s: float
    accuracy: float | None
    adopted: bool
    why: str


@dataclass(frozen=True)
class EventRecord:
    """Something a person may want to know about."""

    at_s: float
    kind: str
    words: str


@dataclass(frozen=True)
class PlanRecord:
    """A decision inside a window: the plan at its beginning, or another one later."""

    window: int
    at_s: float
    slot: int
    """The slot of the window that it begins with."""
    reason: str
    predicted_goodput: float | None = None
    """Of what is left of the window; None: the policy promises nothing."""
    plan_s: float | None = None
    """What deciding took."""
    gap: float | None = None
    """How much better a plan could be at most, as its certificate says."""
    blocks: tuple[Mapping[str, Any], ...] = ()
    """What it holds, as `observe/held_blocks.py` writes it."""


@dataclass(frozen=True)
class ActionRecord:
    """Something that an operator did, or wanted to."""

    at_s: float
    kind: str
    tenant: str | None
    who: str
    """page, cli or api."""
    outcome: str
    """done, refused or failed."""
    words: str


@dataclass(frozen=True)
class RetrainingRecord:
    """How far a tenant's retraining in a window is."""

    window: int
    tenant: str
    at_s: float
    phase: str
    progress: float
    """From 0 to 1."""
    accuracy_estimated: float | None = None


Record = (
    WindowRecord
    | TenantWindowRecord
    | SecondRecord
    | UnitRecord
    | VersionRecord
    | EventRecord
    | PlanRecord
    | ActionRecord
    | RetrainingRecord
)

KEYS: Mapping[type[Record], tuple[str, ...]] = {
    WindowRecord: ("window",),
    TenantWindowRecord: ("window", "tenant"),
    SecondRecord: ("tenant", "second"),
    UnitRecord: ("unit", "from_s"),
    VersionRecord: ("tenant", "number", "at_s"),
    EventRecord: (),
    PlanRecord: ("window", "at_s"),
    ActionRecord: (),
    RetrainingRecord: ("window", "tenant"),
}
"""Which fields tell a row of a run; events and actions are never replaced."""


@dataclass(frozen=True)
class RunRecords:
    """Everything written about a run, oldest first."""

    run: RunRow
    windows: tuple[WindowRecord, ...]
    tenant_windows: tuple[TenantWindowRecord, ...]
    seconds: tuple[SecondRecord, ...]
    units: tuple[UnitRecord, ...]
    versions: tuple[VersionRecord, ...]
    events: tuple[EventRecord, ...]
    plans: tuple[PlanRecord, ...] = ()
    actions: tuple[ActionRecord, ...] = ()
    retrainings: tuple[RetrainingRecord, ...] = ()
