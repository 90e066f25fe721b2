"""Instances and shares with their states, as the executor sees them, and how events change them.

creating -> idle -> warming -> ready -> draining -> stopping -> idle -> destroying. To retrain: idle
-> training -> idle. A destroyed instance has no unit. After a failure a site waits before it is
tried again, and a failed retraining is resumed a limited number of times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from migrator.control.events import (
    Created,
    CreateFailed,
    Destroyed,
    DestroyFailed,
    Drained,
    Event,
    Instruction,
    Ready,
    Stopped,
    StopWorker,
    TrainingEnded,
    WorkerLost,
)
from migrator.core.catalogue import Board, find_placement
from migrator.core.errors import InputError
from migrator.core.problem import Holding, Instance, Kind, Share, Task

_NOWHERE = -1
RESUMED = 2
"""Maximum number of times a failed retraining is resumed while the plan contains it."""
CREATE_WAIT_SLOTS, CREATE_WAIT_MOST_SLOTS = 2, 16
"""Slots to wait after a failed creation, doubled with every further failure, and their maximum."""
DESTROY_WAIT_SLOTS, DESTROY_TRIES = 2, 3
AVOIDED_SLOTS = 60
"""Slots before the removal of an instance is retried after repeated failures."""
LOSSES = 3
"""Workers lost on an instance before the instance is recreated."""
LOST_WAIT_SLOTS = 10
"""Slots for which a site is not used if even a new instance loses its workers."""
STEADY_SLOTS = 30
"""Slots after which a worker counts as stable: if it is lost later, the loss count restarts."""


class Site(NamedTuple):
    """The place of an instance, fast to hash and to compare.

    An MPS share has no place: it takes no slices, so it fits beside everything.
    """

    start: int
    gpcs: int
    mask: int
    """Its memory slices as bits."""
    share: Share | None = None

    def __str__(self) -> str:
        if self.share is not None:
            return f"{self.share} of {self.share.task}"
        return f"{self.gpcs}g@{self.start}"

    @staticmethod
    def of(board: Board, instance: Holding) -> Site:
        """The site of an instance; InputError if the board has no such place."""
        if isinstance(instance, Share):
            return Site(_NOWHERE, 0, 0, instance)
        place = find_placement(board, instance.start, instance.gpcs)
        if place is None:
            raise InputError(
                f"decision: a {board.name} has no place for {instance}; use `migrator boards "
                f"{board.name}` to see where instances fit"
            )
        return Site(place.start, place.gpcs, place.mask)


Wanted = Mapping[Site, Task | None]
"""The task wanted at each site; None: the instance only has to exist."""


class State(StrEnum):
    """The state of a unit."""

    CREATING = "creating"
    IDLE = "idle"
    """The instance exists and is unused."""
    WARMING = "warming"
    READY = "ready"
    """The worker serves."""
    DRAINING = "draining"
    STOPPING = "stopping"
    """The worker gets no requests any more and is being ended."""
    TRAINING = "training"
    DESTROYING = "destroying"

    __hash__ = str.__hash__  # faster than that of an Enum, which is written in Python


@dataclass(frozen=True)
class Unit:
    """One instance or share and its state."""

    site: Site
    state: State
    since_s: float
    """When it entered this state."""
    task: Task | None = None
    """The task it serves or trains, from warming to stopping."""
    broken: bool = False
    """Its workers keep dying, so it must be recreated."""

    @property
    def instance(self) -> Holding:
        """The instance with the task it holds, or the share."""
        if self.site.share is not None:
            return self.site.share
        return Instance(self.site.start, self.site.gpcs, self.task)

    @property
    def bare(self) -> Holding:
        """The instance without its task, or the share, as instructions name it."""
        if self.site.share is not None:
            return self.site.share
        return Instance(self.site.start, self.site.gpcs)

    def does(self, task: Task) -> bool:
        """Whether it serves or trains for that task."""
        busy = State.READY if task.kind is Kind.INFERENCE else State.TRAINING
        return self.state is busy and self.task == task

    @property
    def is_serving(self) -> bool:
        """Whether its worker serves or warms up."""
        return self.state in (State.WARMING, State.READY)

    def into(self, state: State, now_s: float, task: Task | None = None) -> Unit:
        """The same instance in another state."""
        return replace(self, state=state, since_s=now_s, task=task)


_LEAVES = (State.DRAINING, State.STOPPING)


def fits(board: Board, site: Site, beside: Iterable[Site]) -> bool:
    """Whether the site fits beside the others. The site itself is ignored among them."""
    gpcs = site.gpcs
    for other in beside:
        if other == site:
            continue
        if other.mask & site.mask:
            return False
        gpcs += other.gpcs
    return gpcs <= board.compute_slices


def paused_layout(board: Board, units: Collection[Unit], planned: Wanted) -> Mapping[Site, Task]:
    """The task of each site while plans are paused: every serving or warming instance stays.

    `planned`: the plan's layout at this time. A pause may begin in the middle of a change. A tenant
    without an instance at that moment keeps the one that is being drained, or else gets a planned
    one that fits beside the others, so that a pause never takes a tenant's last instance.
    """
    kept = {unit.site: unit.task for unit in units if unit.is_serving and unit.task}
    trained = [unit.site for unit in units if unit.state is State.TRAINING]
    leaving = {unit.site: unit.task for unit in units if unit.state in _LEAVES}
    for offered in (leaving, planned):
        served = {task.tenant for task in kept.values()}
        for site, task in offered.items():
            if task is None or task.kind is Kind.RETRAINING or task.tenant in served:
                continue
            if site not in kept and fits(board, site, (*kept, *trained)):
                kept[site] = task
    return kept


class RetrainingRetries:
    """The retrainings that ended in this window, whenever they were started."""

    def __init__(self) -> None:
        self._window: int | None = None
        self._failures: Counter[str] = Counter()
        self.done: set[str] = set()
        """Tenants whose retraining ended or was given up. No retraining is started for them."""
        self._again: set[str] = set()

    def begin(self, window: int | None) -> None:
        """Begin to follow a decision for a window; None: the decision itself says what to
        retrain."""
        if window is None or window != self._window:
            self._again = {*self.done, *self._failures}
        for tenant in self._again:
            self.done.discard(tenant)
            del self._failures[tenant]
        self._window, self._again = window, set()

    def renew(self, tenant: str) -> None:
        """Allow the next decision to start another retraining of a tenant."""
        self._again.add(tenant)

    def ended(self, tenant: str, ok: bool) -> None:
        """Record that a retraining has ended. One that outlasted its window counts for this window
        too."""
        if not ok:
            self._failures[tenant] += 1
        if ok or self._failures[tenant] > RESUMED:
            self.done.add(tenant)


class Remedy(Enum):
    """The reaction to a lost worker."""

    WARM = auto()
    REMAKE = auto()
    REST = auto()


@dataclass
class _Failures:
    creates: int = 0
    destroys: int = 0
    losses: int = 0
    remade: bool = False
    until_s: float = 0.0
    stuck_s: float = 0.0
    """Until this time no removal is attempted."""


class SiteRetries:
    """Failure counts of every site."""

    def __init__(self) -> None:
        self._at: defaultdict[Site, _Failures] = defaultdict(_Failures)

    def any_waits(self, now_s: float) -> bool:
        """Whether any site waits after a failure."""
        return any(
            now_s < max(failures.until_s, failures.stuck_s) for failures in self._at.values()
        )

    def rests(self, site: Site, now_s: float) -> bool:
        """Whether the site must not be used yet."""
        return site in self._at and now_s < self._at[site].until_s

    def resting(self, now_s: float) -> set[Site]:
        """The sites that must not be used yet."""
        return {site for site, failures in self._at.items() if now_s < failures.until_s}

    def stuck(self, site: Site, now_s: float) -> bool:
        """Whether the instance cannot be removed yet. It can still be used."""
        return site in self._at and now_s < self._at[site].stuck_s

    def created(self, site: Site) -> None:
        """Reset the count of failed creations."""
        self._at[site].creates = 0

    def create_failed(self, site: Site, now_s: float, slot_s: float) -> None:
        """Wait before the next creation, longer every time."""
        failures = self._at[site]
        slots = min(CREATE_WAIT_SLOTS * 2**failures.creates, CREATE_WAIT_MOST_SLOTS)
        failures.creates += 1
        failures.until_s = now_s + slots * slot_s

    def destroyed(self, site: Site) -> None:
        """Reset the count of failed removals."""
        self._at[site].destroys, self._at[site].stuck_s = 0, 0.0

    def destroy_failed(self, site: Site, now_s: float, slot_s: float) -> bool:
        """Wait before the next removal. Returns True if it failed so often that the site is
        avoided."""
        failures = self._at[site]
        failures.destroys += 1
        given_up = failures.destroys >= DESTROY_TRIES
        failures.stuck_s = now_s + (AVOIDED_SLOTS if given_up else DESTROY_WAIT_SLOTS) * slot_s
        if given_up:
            failures.destroys = 0
        return given_up

    def lost(self, site: Site, served_s: float, now_s: float, slot_s: float) -> Remedy:
        """The reaction to a worker that was lost after it served for `served_s`."""
        failures = self._at[site]
        if served_s >= STEADY_SLOTS * slot_s:
            failures.losses, failures.remade = 0, False
        failures.losses += 1
        if failures.losses <= LOSSES:
            return Remedy.WARM
        failures.losses, failures.remade = 0, not failures.remade
        if failures.remade:
            return Remedy.REMAKE
        failures.until_s = now_s + LOST_WAIT_SLOTS * slot_s
        return Remedy.REST


@dataclass(frozen=True)
class UnitChange:
    """The result of an event. `unit` is None if the instance is gone."""

    unit: Unit | None
    instructions: tuple[Instruction, ...] = ()
    about: str = ""
    """The kind of reason to plan again, so that the same reason is not reported repeatedly."""
    replan: str = ""
    """Why to plan again; empty if not needed."""


def apply_event(
    unit: Unit,
    event: Event,
    site_retries: SiteRetries,
    retraining_retries: RetrainingRetries,
    now_s: float,
    slot_s: float,
) -> UnitChange:
    """Apply an event to its unit. An event that does not fit the unit's state changes nothing."""
    outcome = UnitChange(unit)
    idle = unit.into(State.IDLE, now_s)
    match event, unit.state:
        case Created(), State.CREATING:
            site_retries.created(unit.site)
            outcome = UnitChange(idle)
        case CreateFailed(why=why), State.CREATING:
            site_retries.create_failed(unit.site, now_s, slot_s)
            outcome = UnitChange(None, (), "create", f"{unit.bare} could not be created: {why}")
        case Ready(), State.WARMING:
            outcome = UnitChange(unit.into(State.READY, now_s, unit.task))
        case Drained() | WorkerLost(), State.DRAINING:
            stopping = unit.into(State.STOPPING, now_s, unit.task)
            outcome = UnitChange(stopping, (StopWorker(unit.bare),))
        case Stopped(), State.STOPPING:
            outcome = UnitChange(idle)
        case WorkerLost(why=why), State.WARMING | State.READY:
            outcome = _lost(unit, why, site_retries, now_s, slot_s)
        case TrainingEnded(tenant=tenant, ok=ok, why=why), State.TRAINING:
            retraining_retries.ended(tenant, ok)
            reason = "" if ok else f"{unit.task} failed on {unit.bare}: {why}"
            outcome = UnitChange(idle, (), "trained", reason)
        case TrainingEnded(tenant=tenant, ok=ok), State.STOPPING:
            if ok:  # it ended before it could be stopped
                retraining_retries.ended(tenant, ok)
            outcome = UnitChange(idle)
        case Destroyed(), _:
            site_retries.destroyed(unit.site)
            outcome = UnitChange(None)
        case DestroyFailed(why=why), State.DESTROYING:
            given_up = site_retries.destroy_failed(unit.site, now_s, slot_s)
            reason = f"{unit.bare} cannot be destroyed and its place is avoided: {why}"
            outcome = UnitChange(idle, (), "destroy", reason if given_up else "")
        case _:
            pass
    return outcome


def _lost(
    unit: Unit, why: str, site_retries: SiteRetries, now_s: float, slot_s: float
) -> UnitChange:
    """Replace a lost worker at once. If workers keep dying, recreate the instance, then rest the
    site."""
    served_s = now_s - unit.since_s if unit.state is State.READY else 0.0
    idle = unit.into(State.IDLE, now_s)
    match site_retries.lost(unit.site, served_s, now_s, slot_s):
        case Remedy.WARM:
            return UnitChange(idle)
        case Remedy.REMAKE:
            return UnitChange(replace(idle, broken=True))
        case Remedy.REST:
            reason = f"{unit.bare} keeps losing the workers of {unit.task}: {why}"
            return UnitChange(idle, (), "lost", reason)
