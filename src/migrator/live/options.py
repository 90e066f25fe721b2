"""How one daemon serves a scenario, and what follows from it for models and queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from migrator.control.observation import Routing, Sharing, policy_named
from migrator.core.errors import InputError
from migrator.io.folders import CERTIFICATES, live_folder
from migrator.learn.registry import benchmark
from migrator.live.stored_tenants import StoredTenants
from migrator.live.tenant_store import TenantStore
from migrator.records.batches import check_batches_path
from migrator.serving.http.access import Tokens
from migrator.serving.queue import QueueSettings
from migrator.serving.workers.messages import ModelSpec
from migrator.workload.live import LiveScenario, LiveTenant

EMULATED = "emulated"


@dataclass(frozen=True)
class DaemonOptions:
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
    """Reads one tenant entry of a scenario of a cluster; None: it is not part of one."""
    stored: StoredTenants | None = None
    """Which tenants operators have added and removed; None: they cannot."""
    shared: TenantStore | None = None
    """Stores weights and labels outside this machine."""
    ahead: tuple[str, ...] = ()
    """Models of tenants that may be added later; imported at the start."""
    windows_since_s: float | None = None
    """When window 0 began, if several daemons count windows together; None: it counts alone."""
    order_key: str = ""
    """Requests that add or remove tenants must carry this key; only the agent has it."""
    batches: Path | None = None
    """A file that gets a row per batch."""

    def __post_init__(self) -> None:
        check_batches_path(self.batches)
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
        return "cpu" if self.emulated else "cuda"

    @property
    def folder(self) -> Path:
        return live_folder(self.state, self.live.scenario.name)

    @property
    def records(self) -> Path:
        """The file that status, windows and report read."""
        return self.folder / "records.db"

    @property
    def certificates(self) -> Path:
        """The file with the certificates in use, which verbs and agents of this machine trust."""
        return self.folder / CERTIFICATES

    @property
    def models(self) -> dict[str, ModelSpec]:
        return {tenant.name: model_spec(tenant) for tenant in self.live.tenants}


def stored_tenants(state: Path, live: LiveScenario) -> StoredTenants:
    """The tenants of a scenario with those that operators have added and removed."""
    return StoredTenants(live_folder(state, live.scenario.name) / "tenants.json", live)


def model_spec(tenant: LiveTenant) -> ModelSpec:
    """A tenant's model, as worker processes build it."""
    data = None if tenant.benchmark is None else benchmark(tenant.benchmark)
    classes = tenant.classes
    if classes is None:
        assert data is not None, "the scenario sets one of both"
        classes = data.classes
    return ModelSpec(
        tenant.model,
        classes,
        tenant.pixels,
        tenant.seed,
        tenant.input_pixels,
        tenant.weights,
        () if data is None else data.names,
    )


def queue_settings(serving: DaemonOptions, tenant: LiveTenant) -> QueueSettings:
    """The queue of a tenant's requests."""
    slowest_first = policy_named(serving.live.scenario.policy).routing is Routing.SLOWEST_FIRST
    service, limit = tenant.service, serving.live.live.queue_limit
    return QueueSettings(tenant.name, service.slo_s, service.batch, limit, slowest_first)


def assumed_overhead_s(tenant: LiveTenant) -> float:
    """Seconds until a new instance serves the tenant with a prepared worker, by its profile."""
    return tenant.service.profile.overhead.total_s(mig=True, prepared=True)
