"""What a MIG policy has to know of the retrainings it decides around.

One that has started is never moved or resized.
"""

from __future__ import annotations

from migrator.core.instance import Instance
from migrator.policies.policy import Observation, TenantView


def running(observation: Observation) -> dict[str, Instance]:
    """Tenant -> the instance that its retraining runs on and has to keep."""
    return {
        view.name: view.retraining.holding
        for view in observation.tenants
        if view.retraining is not None and isinstance(view.retraining.holding, Instance)
    }


def waiting(observation: Observation) -> tuple[TenantView, ...]:
    """The tenants that have something to retrain which does not run yet."""
    busy = running(observation)
    return tuple(
        view
        for view in observation.tenants
        if view.retraining is not None and view.name not in busy
    )


def remaining_s(view: TenantView, sms: float) -> float:
    """Seconds the tenant's retraining still takes on `sms` SMs, its start included."""
    state = view.retraining
    assert state is not None, f"{view.name} has nothing to retrain"
    start_s = 0.0 if state.done > 0 and state.holding is not None else view.overhead_s
    return start_s + (1 - state.done) * state.seconds.at(sms)
