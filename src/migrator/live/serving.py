"""A live scenario with the options it is started with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from migrator.control.observation import Routing, Sharing, policy_named
from migrator.core.errors import InputError
from migrator.learn.registry import benchmark
from migrator.learn.text_encoder import text_encoder
from migrator.live.shared_store import SharedStore
from migrator.serve.http.authentication import Tokens
from migrator.serve.http.protocol import ModelInterface
from migrator.serve.router.queue import QueueSettings
from migrator.serve.workers.messages import InputKind, ModelSpec
from migrator.workload.live import LiveScenario, LiveTenant

EMULATED = "emulated"


@dataclass(frozen=True)
class Serving:
    """How a scenario is served; InputError if it cannot be."""

    live: LiveScenario
    state: Path
    """Folder of everything that outlives a process: journal, models, labels, records."""
    driver: str = EMULATED
    gpu: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    windows: int | None = None
    """Stop after this number of windows; None: run until stopped."""
    from_first_request: bool = False
    """The first window begins with the first request instead of immediately."""
    reader: Callable[[object], LiveScenario] | None = None
    """Reads one tenant entry of a scenario; None: tenants cannot be added at run time."""
    shared: SharedStore | None = None
    """Stores weights and labels outside this machine."""
    ahead: tuple[str, ...] = ()
    """Models of tenants that may be added later; imported at the start."""
    windows_since_s: float | None = None
    """When window 0 began, if several daemons count windows together; None: it counts alone."""
    order_key: str = ""
    """Requests that add or remove tenants must carry this key; only the agent has it."""

    def __post_init__(self) -> None:
        scenario = self.live.scenario
        if scenario.slot_s != round(scenario.slot_s):
            raise InputError(
                f"slot_s: live slots last whole seconds, not {scenario.slot_s:g} s; use 1 or more"
            )
        chosen = policy_named(scenario.policy)
        if chosen.sharing is Sharing.MPS and self.driver == "mig":
            raise InputError(
                f"policy: {chosen.name} divides the GPU by percentages, which MIG does not; use "
                "--driver mps or emulated, or a policy on instances (`migrator policies`)"
            )

    @property
    def emulated(self) -> bool:
        """Whether there is no GPU, and inference and training take the time given by the
        profiles."""
        return self.driver == EMULATED

    @property
    def device(self) -> str:
        """The torch device of the models."""
        return "cpu" if self.emulated else "cuda"

    @property
    def folder(self) -> Path:
        """The folder of this scenario."""
        return self.state / "live" / self.live.scenario.name

    @property
    def records(self) -> Path:
        """The file that status, windows and report read."""
        return self.folder / "records.db"

    @property
    def models(self) -> dict[str, ModelSpec]:
        """The models by tenant."""
        return {each.name: model_spec(each) for each in self.live.tenants}


def model_spec(tenant: LiveTenant) -> ModelSpec:
    """A tenant's model, as worker processes build it."""
    classes = tenant.classes
    if classes is None:
        assert tenant.benchmark is not None, "the scenario sets one of both"
        classes = benchmark(tenant.benchmark).classes
    return ModelSpec(
        tenant.model, classes, tenant.pixels, tenant.seed, tenant.input_pixels, tenant.weights
    )


def line_of(serving: Serving, tenant: LiveTenant) -> QueueSettings:
    """The queue of a tenant's requests."""
    slowest_first = policy_named(serving.live.scenario.policy).routing is Routing.SLOWEST_FIRST
    service, limit = tenant.service, serving.live.live.queue_limit
    return QueueSettings(tenant.name, service.slo_s, service.batch, limit, slowest_first)


def assumed_overhead_s(tenant: LiveTenant) -> float:
    """Seconds until a new instance serves the tenant with a prepared worker, by its profile."""
    return tenant.service.profile.overhead.total_s(mig=True, prepared=True)


def offered(name: str, kind: InputKind, classes: int) -> ModelInterface:
    """A model as the API describes it."""
    encode = None
    if kind.tokenizer is not None:
        encode = text_encoder(kind.tokenizer, math.prod(kind.shape), kind.padding)
    return ModelInterface(name, kind.datatype, kind.shape, classes, kind.values, encode)
