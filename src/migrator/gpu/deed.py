"""What the journal writes down: single deeds, whole changes, and what is alive after them.

Pure. A generation is one life of an instance: its create has it, and its destroy has the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from migrator.gpu.change import Op, Step
from migrator.gpu.driver import GpuInstance, Place


class State(StrEnum):
    """How far a deed or a change has come."""

    BEGUN = "begun"
    DONE = "done"
    UNDONE = "undone"
    FORGOTTEN = "forgotten"
    """A created instance that was gone when we looked; a change nobody will settle any more."""
    SUPERSEDED = "superseded"
    """A change that was given up for a later one."""


@dataclass(frozen=True)
class Deed:
    """One create or destroy: what was meant, and what became of it."""

    driver: str
    gpu_uuid: str
    boot_id: str
    owner: str
    place: Place
    generation: int
    intent: Op
    state: State = State.BEGUN
    number: int | None = None
    uuid: str | None = None
    """The instance's own, as far as known: they tell it from an equal one of somebody else."""
    change: int | None = None
    """The layout change it is part of."""
    pid: int = 0
    began_s: float = 0.0
    ended_s: float | None = None
    id: int = 0

    @property
    def step(self) -> Step:
        """The deed as a step of a plan."""
        return Step(self.intent, self.place)

    def is_about(self, instance: GpuInstance) -> bool:
        """Whether nothing contradicts that `instance` is the one of this deed."""
        return (
            instance.place == self.place
            and self.number in (None, instance.number)
            and (self.uuid is None or instance.uuid in (None, self.uuid))
        )


@dataclass(frozen=True)
class Change:
    """A change from our instances `before` to our instances `wanted`."""

    driver: str
    gpu_uuid: str
    boot_id: str
    owner: str
    before: tuple[Place, ...]
    wanted: tuple[Place, ...]
    state: State = State.BEGUN
    pid: int = 0
    began_s: float = 0.0
    ended_s: float | None = None
    id: int = 0


def alive(deeds: Iterable[Deed]) -> tuple[Deed, ...]:
    """The creates, begun or done, whose instance no finished destroy has ended."""
    deeds = tuple(deeds)
    ended = {
        each.generation for each in deeds if each.intent is Op.DESTROY and each.state is State.DONE
    }
    return tuple(
        each
        for each in deeds
        if each.intent is Op.CREATE
        and each.state in (State.BEGUN, State.DONE)
        and each.generation not in ended
    )
