"""How one tenant is served: its measured profile under its objective and batch."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.profile import Profile


@dataclass(frozen=True)
class Service:
    """A tenant's model as it is served: answers within `slo_s`, in batches of up to `batch`."""

    tenant: str
    profile: Profile
    slo_s: float
    batch: int
    min_gpcs: int = 1

    def latency_s(self, batch: int, sms: float) -> float:
        """Seconds of one batch on `sms` SMs, nobody beside it."""
        return self.profile.latency_s(batch, sms)

    def full_batch(self, sms: float) -> int:
        """The largest batch within the objective; 0 where not even one request is.

        A request may have to wait for the batch before its own, hence twice the latency.
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
        """GPCs -> requests per second of one instance."""
        return {gpcs: self.capability_rps(board.sms_of(gpcs)) for gpcs in board.sizes}
