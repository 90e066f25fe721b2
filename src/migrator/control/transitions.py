"""State transitions: the effect of an event on its unit."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from migrator.control.retries import Remedy, RetrainingRetries, SiteRetries
from migrator.control.units import State, Unit


@dataclass(frozen=True)
class Outcome:
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
    troubles: SiteRetries,
    trials: RetrainingRetries,
    now_s: float,
    slot_s: float,
) -> Outcome:
    """Apply an event to its unit. An event that does not fit the unit's state changes nothing."""
    heard = Outcome(unit)
    idle = unit.into(State.IDLE, now_s)
    match event, unit.state:
        case Created(), State.CREATING:
            troubles.created(unit.site)
            heard = Outcome(idle)
        case CreateFailed(why=why), State.CREATING:
            troubles.create_failed(unit.site, now_s, slot_s)
            heard = Outcome(None, (), "create", f"{unit.bare} could not be created: {why}")
        case Ready(), State.WARMING:
            heard = Outcome(unit.into(State.READY, now_s, unit.task))
        case Drained() | WorkerLost(), State.DRAINING:
            stopping = unit.into(State.STOPPING, now_s, unit.task)
            heard = Outcome(stopping, (StopWorker(unit.bare),))
        case Stopped(), State.STOPPING:
            heard = Outcome(idle)
        case WorkerLost(why=why), State.WARMING | State.READY:
            heard = _lost(unit, why, troubles, now_s, slot_s)
        case TrainingEnded(tenant=tenant, ok=ok, why=why), State.TRAINING:
            trials.ended(tenant, ok)
            reason = "" if ok else f"{unit.task} failed on {unit.bare}: {why}"
            heard = Outcome(idle, (), "trained", reason)
        case TrainingEnded(tenant=tenant, ok=ok), State.STOPPING:
            if ok:  # it ended before it could be stopped
                trials.ended(tenant, ok)
            heard = Outcome(idle)
        case Destroyed(), _:
            troubles.destroyed(unit.site)
            heard = Outcome(None)
        case DestroyFailed(why=why), State.DESTROYING:
            given_up = troubles.destroy_failed(unit.site, now_s, slot_s)
            reason = f"{unit.bare} cannot be destroyed and its place is avoided: {why}"
            heard = Outcome(idle, (), "destroy", reason if given_up else "")
    return heard


def _lost(unit: Unit, why: str, troubles: SiteRetries, now_s: float, slot_s: float) -> Outcome:
    """Replace a lost worker at once. If workers keep dying, recreate the instance, then rest the
    site."""
    served_s = now_s - unit.since_s if unit.state is State.READY else 0.0
    idle = unit.into(State.IDLE, now_s)
    match troubles.lost(unit.site, served_s, now_s, slot_s):
        case Remedy.WARM:
            return Outcome(idle)
        case Remedy.REMAKE:
            return Outcome(replace(idle, broken=True))
        case Remedy.REST:
            reason = f"{unit.bare} keeps losing the workers of {unit.task}: {why}"
            return Outcome(idle, (), "lost", reason)
