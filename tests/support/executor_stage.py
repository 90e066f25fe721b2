"""An executor whose instructions are carried out at once, but for those a test holds back."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.control import events as ev
from migrator.control.executor import Executor
from migrator.control.memory import GpuMemory
from migrator.core.catalogue import Board, board
from migrator.core.problem import Holding, Instance, Kind, Task

A100 = board("A100-40GB")


def serves(tenant: str, gpcs: int, start: int) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.INFERENCE))


def trains(tenant: str, gpcs: int, start: int) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.RETRAINING))


class Stage:
    """Says what was said, in words such as "warm 3g@4 b"."""

    def __init__(
        self,
        lead_s: float = 0.0,
        overheads_s: dict[str, float] | None = None,
        on: Board = A100,
        *,
        resizes: bool = True,
        memory: GpuMemory | None = None,
    ) -> None:
        self.executor = Executor(on, lead_s, overheads_s, resizes=resizes, memory=memory)
        self.held_back: set[str] = set()
        """Instructions, in words, that are left unanswered."""

    def follow(
        self, now_s: float, *slots: tuple[Holding, ...], window: int | None = None
    ) -> list[str]:
        return self.carry_out(now_s, self.executor.follow(now_s, slots, 1.0, window=window))

    def tick(self, now_s: float) -> list[str]:
        return self.carry_out(now_s, self.executor.tick(now_s))

    def on(self, now_s: float, event: ev.Event) -> list[str]:
        return self.carry_out(now_s, self.executor.on(now_s, event))

    def states(self) -> dict[str, str]:
        """What is there: "3g@4" -> "ready b"."""
        return {
            str(unit.site): f"{unit.state} {unit.task.tenant}" if unit.task else str(unit.state)
            for unit in self.executor.units
        }

    def carry_out(self, now_s: float, said: Sequence[ev.Instruction]) -> list[str]:
        """Answers every instruction, and those that follow; all of them in words."""
        lines, waiting = [], list(said)
        while waiting:
            instruction = waiting.pop(0)
            lines.append(_words(instruction))
            assert len(lines) < 200, f"never at rest: {lines[-5:]}"
            answer = None if lines[-1] in self.held_back else _answer(instruction)
            if answer is not None:
                waiting += self.executor.on(now_s, answer)
        return lines


def _words(said: ev.Instruction) -> str:
    name = type(said).__name__.lower()
    if isinstance(said, ev.Replan):
        return f"replan: {said.reason}"
    tenant = getattr(said, "tenant", None)
    return f"{name} {said.instance}" + (f" {tenant}" if tenant else "")


def _answer(said: ev.Instruction) -> ev.Event | None:  # noqa: PLR0911 (a case per instruction)
    """That it went well; a retraining takes until the test ends it."""
    match said:
        case ev.Create():
            return ev.Created(said.instance)
        case ev.Prepare():
            return ev.Prepared(said.instance, said.tenant)
        case ev.Warm():
            return ev.Ready(said.instance, 1.0)
        case ev.Drain():
            return ev.Drained(said.instance)
        case ev.StopWorker():
            return ev.Stopped(said.instance)
        case ev.Destroy():
            return ev.Destroyed(said.instance)
        case _:
            return None
