"""What is served, where and how: a live scenario with the choices of whoever starts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from migrator.core.errors import InputError
from migrator.learn.registry import benchmark
from migrator.live.shared_store import SharedStore
from migrator.policies.policy import Sharing
from migrator.policies.registry import policy
from migrator.serve.assignment import ModelSpec
from migrator.serve.tokens import Tokens
from migrator.workload.live import LiveScenario, LiveTenant

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
    reader: Callable[[object], LiveScenario] | None = None
    """An entry as scenarios have them, to a scenario of that tenant alone; None: nobody comes."""
    shared: SharedStore | None = None
    """Where weights and labels outlive this machine."""
    ahead: tuple[str, ...] = ()
    """Models that tenants to come will have: imported at the start."""
    windows_since_s: float | None = None
    """When window 0 began, for several daemons that count together; None: it counts by itself."""
    order_key: str = ""
    """Requests that add or remove tenants must carry this key; only the agent has it."""

    def __post_init__(self) -> None:
        scenario = self.live.scenario
        if scenario.slot_s != round(scenario.slot_s):
            raise InputError(
                f"slot_s: {scenario.slot_s:g} s are not whole seconds, which live slots must be; "
                "give 1 or more"
            )
        chosen = policy(scenario.policy)
        if chosen.sharing is Sharing.MPS and self.driver == "mig":
            raise InputError(
                f"policy: {chosen.name} divides the GPU by percentages, which MIG does not; use "
                "--driver mps or emulated, or a policy on instances (`migrator policies`)"
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
        return {each.name: model_spec(each) for each in self.live.tenants}


def model_spec(tenant: LiveTenant) -> ModelSpec:
    """A tenant's model as the nursery builds it."""
    classes = tenant.classes
    if classes is None:
        assert tenant.benchmark is not None, "the scenario says one or the other"
        classes = benchmark(tenant.benchmark).classes
    return ModelSpec(tenant.model, classes, tenant.pixels, tenant.seed)
