"""How one tenant is served: its profile with a latency objective and a batch size."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.profiles import Profile


@dataclass(frozen=True)
class Service:
    """A tenant's model as it is served: answers within `slo_s`, in batches of up to `batch`."""

    tenant: str
    profile: Profile
    slo_s: float
    batch: int
    min_gpcs: int = 1

    def latency_s(self, batch: int, sms: float) -> float:
        """Seconds of one batch alone on `sms` SMs."""
        return self.profile.latency_s(batch, sms)

    def full_batch(self, sms: float) -> int:
        """The largest batch within the objective; 0 if a single request exceeds it.

        A request may wait for the previous batch, hence twice the latency.
        """
        for batch in range(self.batch, 1, -1):
            if 2 * self.latency_s(batch, sms) <= self.slo_s:
                return batch
        return int(self.latency_s(1, sms) <= self.slo_s)

    def capability_rps(self, sms: float) -> float:
        """Requests per second that one worker process on `sms` SMs answers within the objective."""
        batch = self.full_batch(sms)
        return batch / self.latency_s(batch, sms) if batch else 0.0

    def capabilities_rps(self, board: Board) -> dict[int, float]:
        """GPCs -> requests per second of one instance; 0 where the model does not fit."""
        needed_mib = self.profile.serving_mib(self.batch)
        return {
            gpcs: self.capability_rps(board.sms_of(gpcs))
            if board.memory_mib_of(gpcs) >= needed_mib
            else 0.0
            for gpcs in board.sizes
        }

    def training_sizes(self, board: Board) -> tuple[int, ...]:
        """The instance sizes in GPCs that have the memory to retrain the model."""
        needed_mib = self.profile.training_mib
        return tuple(gpcs for gpcs in board.sizes if board.memory_mib_of(gpcs) >= needed_mib)
