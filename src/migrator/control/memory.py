"""The memory of one GPU: what its processes hold, and whether another one fits beside them.

Under MPS all processes share the memory of the GPU, and none gives back what it has allocated once.
So a process is started only where all that it will hold is free. Standbys give way first; then
trainings wait for memory, and estimates for what trainings leave. A MIG instance has memory of its
own: workers and trainings fit by its size, and only an estimate runs beside another process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum

from migrator.core.catalogue import Board
from migrator.core.problem import Kind, Task
from migrator.core.profiles import Service

PER_SLICE = 2
"""Most standbys per slice of the board. MPS serves 48 processes."""
_SPARE = 0.02
"""Part of the GPU's memory for the driver, the MPS server and what fragments."""


class ProcessKind(StrEnum):
    """The kinds of processes that use a GPU."""

    WORKER = "worker"
    """It serves, or waits as a standby."""
    RETRAINING = "retraining"
    ESTIMATE = "estimate"

    @classmethod
    def of(cls, task: Task) -> ProcessKind:
        """The process of a task."""
        return cls.WORKER if task.kind is Kind.INFERENCE else cls.RETRAINING


class ProcessMemory:
    """What the processes of one tenant hold on a GPU, by the profile and as they report it."""

    def __init__(self, service: Service) -> None:
        profile = service.profile
        self._by_profile = {
            ProcessKind.WORKER: profile.held_by_worker_mib(service.batch),
            ProcessKind.RETRAINING: profile.held_by_retraining_mib,
            ProcessKind.ESTIMATE: profile.held_by_estimate_mib,
        }
        self._is_measured = {
            ProcessKind.WORKER: bool(profile.worker_held_mib),
            ProcessKind.RETRAINING: profile.retraining_held_mib is not None,
            ProcessKind.ESTIMATE: profile.estimate_held_mib is not None,
        }
        self.least_for_training_mib = profile.training_mib
        """Without it a retraining fails; 0 if unknown."""
        self._reported: dict[ProcessKind, float] = {}

    def report(self, process: ProcessKind, mib: float) -> None:
        """Count with what a process holds; 0 if it cannot tell."""
        if mib > 0:
            self._reported[process] = max(mib, self._reported.get(process, 0.0))

    def held_mib(self, process: ProcessKind) -> float:
        """What such a process holds; 0 if unknown.

        The larger of the profile and what processes reported. These alone count where the profile
        does not say what was measured.
        """
        reported = self._reported.get(process)
        if reported is not None and not self._is_measured[process]:
            return reported
        return max(self._by_profile[process], reported or 0.0)


class GpuMemory:
    """The plan of the memory of one GPU."""

    def __init__(
        self,
        limit_mib: float = math.inf,
        tenants: Callable[[], Mapping[str, ProcessMemory]] = dict,
        *,
        most_standbys: int = 0,
    ) -> None:
        """`tenants`: what the processes of every tenant hold; it is read on every use."""
        self.limit_mib = limit_mib
        self._tenants, self._most_standbys = tenants, most_standbys
        self._estimates: dict[str, float] = {}

    @classmethod
    def of(cls, board: Board, tenants: Callable[[], Mapping[str, ProcessMemory]]) -> GpuMemory:
        """The memory of a board. There are no standbys on MIG instances."""
        most = PER_SLICE * board.compute_slices if board.is_of_shares else 0
        whole_mib = (1 - _SPARE) * board.memory_mib_of(board.sizes[-1])
        return cls(whole_mib, tenants, most_standbys=most)

    @property
    def most_standbys(self) -> int:
        """How many there may be, if memory suffices; 0 if what a worker holds is unknown."""
        known = all(tenant.held_mib(ProcessKind.WORKER) for tenant in self._tenants().values())
        return self._most_standbys if known else 0

    @property
    def state(self) -> object:
        """Equal as long as nothing has changed."""
        held = [
            (name, *map(tenant.held_mib, ProcessKind)) for name, tenant in self._tenants().items()
        ]
        return self.limit_mib, self._most_standbys, tuple(held), tuple(self._estimates.items())

    @property
    def free_mib(self) -> float:
        """What estimates leave to other processes."""
        return self.limit_mib - sum(self._estimates.values())

    @property
    def largest_worker_mib(self) -> float:
        """What a worker of any tenant holds at most."""
        held = (tenant.held_mib(ProcessKind.WORKER) for tenant in self._tenants().values())
        return max(held, default=0.0)

    def held_mib(self, tenant: str, process: ProcessKind) -> float:
        """What a process of a tenant holds; 0 if unknown."""
        memory = self._tenants().get(tenant)  # None: removed meanwhile
        return 0.0 if memory is None else memory.held_mib(process)

    def least_for_training_mib(self, tenant: str) -> float:
        """What a retraining of a tenant cannot do without; 0 if unknown."""
        memory = self._tenants().get(tenant)
        return 0.0 if memory is None else memory.least_for_training_mib

    @property
    def is_estimating(self) -> bool:
        return bool(self._estimates)

    def admit_estimate(self, tenant: str, beside_mib: float) -> bool:
        """Whether an estimate fits into the GPU's memory beside these processes. It counts until
        `end_estimate`; there is one of a tenant at a time."""
        mib = self.held_mib(tenant, ProcessKind.ESTIMATE)
        if tenant in self._estimates or (mib and mib > self.free_mib - beside_mib):
            return False
        self._estimates[tenant] = mib
        return True

    def admit_estimate_on(self, service: Service, instance_mib: float) -> bool:
        """Whether an estimate fits beside the worker on a MIG instance of this memory.

        Where memory is short, torch gives back what it keeps, so the least suffices for it.
        """
        held_mib = self.held_mib(service.tenant, ProcessKind.WORKER)
        fits = held_mib + service.profile.training_mib <= instance_mib
        if fits:
            self._estimates[service.tenant] = 0.0
        return fits

    def end_estimate(self, tenant: str) -> None:
        """The process of an estimate has ended, or did not begin."""
        self._estimates.pop(tenant, None)
