"""What an event makes of its unit: the next state, what to do at once, why to plan again."""

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
from migrator.control.trials import Trials
from migrator.control.troubles import Cure, Troubles
from migrator.control.units import State, Unit


@dataclass(frozen=True)
class Heard:
    """The unit after an event; None: it is gone."""

    unit: Unit | None
    instructions: tuple[Instruction, ...] = ()
    about: str = ""
    """Tells reasons to plan again apart, so that one is not told over and over."""
    replan: str = ""
    """Why to plan again; empty: no need."""


def hear(
    unit: Unit, event: Event, troubles: Troubles, trials: Trials, now_s: float, slot_s: float
) -> Heard:
    """What follows from the event; one that does not fit the unit's state changes nothing."""
    heard = Heard(unit)
    idle = unit.into(State.IDLE, now_s)
    match event, unit.state:
        case Created(), State.CREATING:
            troubles.created(unit.site)
            heard = Heard(idle)
        case CreateFailed(why=why), State.CREATING:
            troubles.create_failed(unit.site, now_s, slot_s)
            heard = Heard(None, (), "create", f"{unit.bare} could not be created: {why}")
        case Ready(), State.WARMING:
            heard = Heard(unit.into(State.READY, now_s, unit.task))
        case Drained() | WorkerLost(), State.DRAINING:
            stopping = unit.into(State.STOPPING, now_s, unit.task)
            heard = Heard(stopping, (StopWorker(unit.bare),))
        case Stopped(), State.STOPPING:
            heard = Heard(idle)
        case WorkerLost(why=why), State.WARMING | State.READY:
            heard = _lost(unit, why, troubles, now_s, slot_s)
        case TrainingEnded(tenant=tenant, ok=ok, why=why), State.TRAINING:
            trials.ended(tenant, ok)
            reason = "" if ok else f"{unit.task} failed on {unit.bare}: {why}"
            heard = Heard(idle, (), "trained", reason)
        case Destroyed(), _:
            troubles.destroyed(unit.site)
            heard = Heard(None)
        case DestroyFailed(why=why), State.DESTROYING:
            given_up = troubles.destroy_failed(unit.site, now_s, slot_s)
            reason = f"{unit.bare} cannot be destroyed and its place is avoided: {why}"
            heard = Heard(idle, (), "destroy", reason if given_up else "")
    return heard


def _lost(unit: Unit, why: str, troubles: Troubles, now_s: float, slot_s: float) -> Heard:
    """A new worker at once; if they keep dying a new instance, then a rest for the site."""
    served_s = now_s - unit.since_s if unit.state is State.READY else 0.0
    idle = unit.into(State.IDLE, now_s)
    match troubles.lost(unit.site, served_s, now_s, slot_s):
        case Cure.WARM:
            return Heard(idle)
        case Cure.REMAKE:
            return Heard(replace(idle, broken=True))
        case Cure.REST:
            reason = f"{unit.bare} keeps losing the workers of {unit.task}: {why}"
            return Heard(idle, (), "lost", reason)
