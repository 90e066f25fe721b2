"""What a worker or a training of a tenant gets on an instance: model, version, times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from migrator.core.catalogue import Board
from migrator.core.share import Holding, Share, sms_of
from migrator.live.learning import Learning
from migrator.live.tenant_run import TenantRun
from migrator.serve.assignment import Assignment, ModelSpec

_PATIENCE = 20.0
"""A batch that takes so many times its latency, and a second at least, counts as hung."""


class TenantDuties:
    """The hands' questions answered from the tenants' state."""

    def __init__(
        self,
        tenants: Mapping[str, TenantRun],
        specs: Mapping[str, ModelSpec],
        learning: Learning,
        board: Board,
        device: str,
        *,
        emulated: bool,
    ) -> None:
        self._tenants, self._specs, self._learning = tenants, specs, learning
        self._board, self._device, self._emulated = board, device, emulated

    def assignment(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Assignment:
        """What a worker takes there now: the newest version of the tenant's model."""
        run, latency_s = self._tenants[tenant], self.latency_s(tenant, instance)
        batch = run.live.service.batch
        version = run.version
        times = {each: 1e3 * latency_s(each) for each in range(1, batch + 1)}
        return Assignment(
            tenant=tenant,
            model=self._specs[tenant].model,
            weights=version.weights if version else None,
            version=version.number if version else 0,
            device=self._device,
            environment=environment,
            batch=batch,
            latency_ms=times if self._emulated else None,
            limit_s=max(5.0, _PATIENCE * latency_s(batch)),
        )

    def latency_s(self, tenant: str, instance: Holding) -> Callable[[int], float]:
        """Seconds of a batch of so many there."""
        service, sms = self._tenants[tenant].live.service, sms_of(self._board, instance)
        # who takes turns with others has the SMs for a part of the time
        duty = instance.duty if isinstance(instance, Share) else 1.0
        return lambda batch: service.latency_s(batch, sms) / duty

    def train(
        self, tenant: str, instance: Holding, environment: Mapping[str, str]
    ) -> Awaitable[str]:
        """Retrain there to the end."""
        return self._learning.train(tenant, instance, environment)

    def end_estimates(self, environment: Mapping[str, str]) -> Awaitable[None]:
        """End estimates on that instance."""
        return self._learning.end_estimates(environment)
