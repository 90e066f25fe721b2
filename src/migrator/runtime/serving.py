"""What is served, where and how: a live scenario with the choices of whoever starts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from migrator.core.errors import InputError
from migrator.learn.registry import benchmark
from migrator.policies.policy import Sharing
from migrator.policies.registry import policy
from migrator.scenario.live import LiveScenario, LiveTenant
from migrator.serve.assignment import ModelSpec
from migrator.serve.tokens import Tokens

EMULATED = "emulated"


@dataclass(frozen=True)
class Serving:
    """How a scenario is served; InputError where it cannot be."""

    live: LiveScenario
    state: Path
    """Where everything lives that outlasts a process: journal, models, labels, records."""
    driver: str = EMULATED
    gpu: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    windows: int | None = None
    """Stop after so many; None: until told to."""
    from_first_request: bool = False
    """The first window begins with the first request, not at once."""

    def __post_init__(self) -> None:
        scenario = self.live.scenario
        if scenario.slot_s != round(scenario.slot_s):
            raise InputError(
                f"slot_s: {scenario.slot_s:g} s are not whole seconds, which live slots must be; "
                "give 1 or more"
            )
        chosen = policy(scenario.policy)
        if chosen.sharing is not Sharing.MIG:
            raise InputError(
                f"policy: {chosen.name} divides the GPU by percentages, which is only simulated so "
                "far; use migrator, paris, static-4-3 or another on instances"
            )

    @property
    def emulated(self) -> bool:
        """Whether answers and trainings take as long as profiles say, not as this machine needs."""
        return self.driver == EMULATED

    @property
    def device(self) -> str:
        """Where models compute."""
        return "cpu" if self.emulated else "cuda"

    @property
    def folder(self) -> Path:
        """Of this scenario."""
        return self.state / "live" / self.live.scenario.name

    @property
    def records(self) -> Path:
        """What status, windows and report read."""
        return self.folder / "records.db"

    @property
    def models(self) -> dict[str, ModelSpec]:
        """Every tenant's model."""
        return {each.name: _model(each) for each in self.live.tenants}


def _model(tenant: LiveTenant) -> ModelSpec:
    classes = tenant.classes
    if classes is None:
        assert tenant.benchmark is not None, "the scenario says one or the other"
        classes = benchmark(tenant.benchmark).classes
    return ModelSpec(tenant.model, classes, tenant.pixels, tenant.seed)
