"""The workers as the daemon sees them: prepared ahead, taking instances, serving, released."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError, MigratorError
from migrator.serve.assignment import (
    Answered,
    Assignment,
    InputKind,
    ModelFaultError,
    ModelSpec,
    Taken,
    WorkerLink,
    WorkerLostError,
)
from migrator.serve.messages import Infer, Scores, Swap, Swapped, Take, Took
from migrator.serve.nursery_process import Nursery
from migrator.serve.wire import flat, shaped
from migrator.serve.worker_line import WorkerLine

__all__ = [
    "Answered",
    "Assignment",
    "InputKind",
    "ModelFaultError",
    "ModelSpec",
    "ServingWorker",
    "Taken",
    "WorkerLink",
    "WorkerLostError",
    "Workers",
]

_AGAIN_S = 0.5
"""A prepared worker that died is replaced after a pause: the next may die of the same."""
_GRACE_S = 2.0
"""After its last batch; a process on a GPU takes a while to give its memory back."""
_NOTHING = memoryview(b"")

_log = logging.getLogger(__name__)


class ServingWorker:
    """A worker that has taken an instance."""

    def __init__(
        self, line: WorkerLine, assignment: Assignment, taken: Taken, hang_s: float
    ) -> None:
        self._line, self._hang_s = line, hang_s
        self.assignment, self.taken = assignment, taken
        """The assignment names the version that serves now."""
        self._swapping = asyncio.Lock()

    @property
    def name(self) -> str:
        """Unique in the life of a daemon."""
        return self._line.name

    @property
    def pid(self) -> int:
        """Its process."""
        return self._line.pid

    async def infer(self, inputs: NDArray[Any], request_ids: str = "") -> Answered:
        """One batch; WorkerLostError, ModelFaultError where the model raises, InputError."""
        shape, dtype, payload = flat(inputs)
        limit_s = self.assignment.limit_s or self._hang_s
        frame = await self._line.ask(
            lambda number: Infer(number, shape, dtype, request_ids), payload, limit_s
        )
        said = frame.message
        assert isinstance(said, Scores)
        # a copy: scores are small, the buffer they came in is not
        scores: NDArray[np.float32] = shaped(said.shape, "<f4", frame.payload).copy()
        return Answered(scores, said.version, said.seconds)

    async def swap(self, weights: Path, version: int) -> float:
        """Serve these weights from some batch on; the seconds it took.

        InputError: they cannot be used, and the old ones serve on.
        """
        async with self._swapping:
            path = weights.absolute()
            frame = await self._line.ask(
                lambda number: Swap(number, path, version), _NOTHING, self._hang_s
            )
            assert isinstance(frame.message, Swapped)
            self.assignment = replace(self.assignment, weights=path, version=version)
            return frame.message.seconds

    async def release(self) -> None:
        """Let it finish its batch and end; returns when the process is gone."""
        await self._line.end((self.assignment.limit_s or self._hang_s) + _GRACE_S)


class Workers:
    """All worker processes of a daemon."""

    def __init__(
        self,
        folder: Path,
        models: Mapping[str, ModelSpec],
        *,
        hang_s: float = 30.0,
        ahead: tuple[str, ...] = (),
    ) -> None:
        """`models`: by tenant; `folder`: for the log of all of them, nobody else may read it.

        `ahead`: models of tenants that may come later, imported at the start.
        """
        self._folder, self._models, self._hang_s = folder, dict(models), hang_s
        self.log = folder / "workers.log"
        self.nursery = Nursery(self.log, models, answer_s=hang_s, ahead=ahead)
        self.lost: Callable[[ServingWorker, str], None] | None = None
        """Told when a worker that had taken an instance dies by itself."""
        self._names = count(1)
        self._wanted = dict.fromkeys(models, 0)
        self._waiting: dict[str, list[WorkerLine]] = {each: [] for each in models}
        self._filling = {each: asyncio.Lock() for each in models}
        self._serving: dict[WorkerLine, ServingWorker] = {}
        self._lines: set[WorkerLine] = set()
        self._aside: set[asyncio.Task[None]] = set()
        self._closing = False
        self._starting: asyncio.Task[None] | None = None

    @property
    def inputs(self) -> Mapping[str, InputKind]:
        """What one row of every tenant's inputs looks like, once started."""
        return self.nursery.inputs

    def begin(self) -> asyncio.Task[None]:
        """Begin to start the nursery; `start` waits for it."""
        if self._starting is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            self._starting = asyncio.create_task(self.nursery.start())
        return self._starting

    async def start(self) -> None:
        """The nursery with all models; InputError for a model that cannot be built."""
        await self.begin()

    async def close(self) -> None:
        """Let every worker finish its batch, and end them all."""
        self._closing = True
        aside = [*self._aside, *([self._starting] if self._starting else [])]
        for task in aside:
            task.cancel()
        await asyncio.gather(*aside, return_exceptions=True)
        await asyncio.gather(*(each.end(self._hang_s) for each in list(self._lines)))
        await self.nursery.close()

    async def add(self, tenant: str, model: ModelSpec) -> None:
        """Another tenant; InputError where its model cannot be built.

        One that was here before with the same model is known still.
        """
        if self._models.get(tenant) == model:
            return
        if tenant in self._models:
            raise InputError(
                f"tenant {tenant}: it was here with another model; start the daemon again"
            )
        await self.nursery.add(tenant, model)
        self._wanted[tenant], self._waiting[tenant] = 0, []
        self._filling[tenant] = asyncio.Lock()
        self._models[tenant] = model

    async def prepare(self, tenant: str, count: int) -> None:
        """Keep so many waiting for that tenant from now on; returns when they are there."""
        self._wanted[self._known(tenant)] = count
        await self._fill(tenant)

    def prepared(self, tenant: str) -> int:
        """How many wait now."""
        return len(self._waiting[self._known(tenant)])

    async def take(self, assignment: Assignment) -> ServingWorker:
        """A worker on that instance, warm; WorkerLostError, InputError for weights that do not fit.

        One that waits, or a new one where none does.
        """
        tenant = self._known(assignment.tenant)
        if assignment.model != self._models[tenant].model:
            raise InputError(
                f"tenant {tenant}: its workers have {self._models[tenant].model}, not "
                f"{assignment.model}; start the daemon again with the other model"
            )
        line = self._prepared(tenant) or await self._forked(tenant)
        try:
            return await self._taken(line, assignment)
        except BaseException as error:
            line.kill(f"worker {line.name} could not take its instance ({error}); try again")
            await line.over()  # so that the instance is free again
            raise
        finally:
            self._refill(tenant)

    async def _taken(self, line: WorkerLine, assignment: Assignment) -> ServingWorker:
        if assignment.weights is not None:
            assignment = replace(assignment, weights=assignment.weights.absolute())
        frame = await line.ask(lambda n: Take(n, assignment), _NOTHING, self._hang_s)
        assert isinstance(frame.message, Took)
        if not line.alive:  # it died of its success, before anybody could be told
            raise WorkerLostError(f"worker {line.name} ended once it was ready; start another")
        worker = ServingWorker(line, assignment, Taken(frame.message.parts_s), self._hang_s)
        self._serving[line] = worker
        return worker

    def _known(self, tenant: str) -> str:
        if tenant not in self._models:
            raise InputError(
                f"tenant {tenant} has no model here; name one of {', '.join(sorted(self._models))}"
            )
        return tenant

    def _prepared(self, tenant: str) -> WorkerLine | None:
        waiting = self._waiting[tenant]
        alive = next((each for each in waiting if each.alive), None)
        if alive is not None:
            waiting.remove(alive)
        return alive

    async def _forked(self, tenant: str) -> WorkerLine:
        line = await WorkerLine.connected(
            f"w{next(self._names)}", self.nursery, tenant, self._ended
        )
        self._lines.add(line)
        if self._closing:  # whoever ends all workers has already been through the others
            line.kill("the daemon ends; start it again")
        return line

    async def _fill(self, tenant: str) -> None:
        """As many as are wanted; those beyond end."""
        async with self._filling[tenant]:
            waiting = self._waiting[tenant]
            while len(waiting) < self._wanted[tenant]:
                waiting.append(await self._forked(tenant))
            beyond, waiting[:] = waiting[self._wanted[tenant] :], waiting[: self._wanted[tenant]]
            await asyncio.gather(*(each.end(self._hang_s) for each in beyond))

    def _ended(self, line: WorkerLine, how: str) -> None:
        self._lines.discard(line)
        worker = self._serving.pop(line, None)
        if line.released:
            return
        if worker is not None and self.lost is not None:
            self.lost(worker, how)
        for tenant, waiting in self._waiting.items():
            if line in waiting:
                waiting.remove(line)
                _log.warning("a prepared worker of %s is gone: %s", tenant, how)
                self._refill(tenant, _AGAIN_S)

    def _refill(self, tenant: str, wait_s: float = 0.0) -> None:
        if not self._closing:
            task = asyncio.create_task(self._fill_aside(tenant, wait_s))
            self._aside.add(task)
            task.add_done_callback(self._aside.discard)

    async def _fill_aside(self, tenant: str, wait_s: float) -> None:
        """Nobody waits for it: what goes wrong is written down and tried again."""
        await asyncio.sleep(wait_s)
        try:
            await self._fill(tenant)
        except MigratorError as error:
            _log.warning("no worker of %s could be prepared: %s", tenant, error)
            self._refill(tenant, _AGAIN_S)
