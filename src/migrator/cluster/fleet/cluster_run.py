"""One served cluster: its scenario and settings, and its head, agents and machines on Ray.

The settings are plain, serializable data, shared by the head and every agent; an agent derives the
scenario of its own GPU from them. Ray is imported on use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from migrator.cluster.file import parse_cluster
from migrator.cluster.scenario import ClusterGpu, ClusterScenario, ClusterTenant
from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.io.data_file import read_yaml_file
from migrator.io.file_kind import CLUSTER, SCENARIO
from migrator.io.folders import CERTIFICATES, live_folder
from migrator.io.strict import listed
from migrator.workload.capacity import highest_rps
from migrator.workload.live import Live, LiveScenario, parse_live
from migrator.workload.tokens import read_tokens

_OF_CLUSTERS = ("count", "memory_gib")
"""Keys of a tenant that only cluster scenarios have."""


@dataclass(frozen=True)
class ClusterRun:
    """The scenario and settings of one served cluster."""

    name: str
    data: Mapping[str, Any]
    """The parsed YAML of the scenario."""
    folder: str
    """Base folder of relative paths, the same on every machine."""
    driver: str
    shared: str
    """Store for weights and labels that outlives a machine: a shared folder or an address."""
    state: str
    """The state folder on every machine."""
    began_s: float
    """Unix time at which window 0 began."""

    @cached_property
    def scenario(self) -> ClusterScenario:
        return parse_cluster(self.data, folder=Path(self.folder), name=self.name)

    def gpu(self, name: str) -> ClusterGpu:
        """The GPU of that name; InputError if there is none."""
        for gpu in self.scenario.gpus:
            if gpu.name == name:
                return gpu
        names = listed([gpu.name for gpu in self.scenario.gpus])
        raise InputError(f"gpu: {self.name} has no {name}; name {names}")

    def state_of(self, gpu: str) -> Path:
        return Path(self.state) / "cluster" / quote(self.name, "") / quote(gpu, "")

    def certificates_of(self, gpu: str) -> Path:
        """The file in which the GPU's daemon publishes its certificates."""
        return live_folder(self.state_of(gpu), self._name_on(gpu)) / CERTIFICATES

    def entry(self, tenant: str) -> dict[str, Any]:
        index = [tenant.name for tenant in self.scenario.tenants].index(tenant)
        entry = dict(self.data["tenants"][self.scenario.tenants[index].entry])
        live = dict(entry.get("live") or {})
        live.setdefault("seed", self.scenario.seed + index)
        entry.pop("count", None)
        return {**entry, "name": tenant, "live": live}

    def read(self, gpu: str, entry: object) -> LiveScenario:
        """A scenario of that tenant alone on that GPU; `entry` is that of `entry`."""
        board, boards = self.gpu(gpu).board, self.scenario.boards
        name = entry.get("name") if isinstance(entry, dict) else None
        tenant = next((t for t in self.scenario.tenants if t.name == name), None)
        if tenant is None or board.name not in tenant.served or entry != self.entry(tenant.name):
            raise InputError(
                f"admit: {self.name} has no such tenant for {gpu}; stop the cluster and serve "
                "another scenario"
            )
        # its fastest board, where its rate was checked: a slower one might refuse a placed tenant
        fastest = max(tenant.served, key=lambda b: highest_rps(tenant.served[b].service, boards[b]))
        alone = self._parsed(boards[fastest], self.entry(tenant.name))
        # with its arrivals at placement: parsed alone, similar tenants would share them
        served = tenant.served[board.name]
        scenario = replace(alone.scenario, board=board, tenants=(served,))
        live = replace(alone.tenants[0], service=served.service)
        return replace(alone, scenario=scenario, tenants=(live,))

    def live_on(self, gpu: str, tenants: Iterable[str]) -> LiveScenario:
        """The scenario that the GPU's daemon starts with, possibly without tenants."""
        read = [self.read(gpu, self.entry(tenant)) for tenant in tenants]
        settings = read[0] if read else self._first
        return _combined(read, settings, self._name_on(gpu), self.gpu(gpu).board)

    def live_on_any(self) -> LiveScenario:
        """All tenants together, as clients see them, each on some board that serves it."""
        read = [self._read_anywhere(tenant) for tenant in self.scenario.tenants]
        return _combined(read, read[0], self.name, read[0].scenario.board)

    @property
    def live(self) -> Live:
        """Address and access settings of every daemon's API, which do not depend on the board."""
        return self._first.live

    def tokens(self) -> dict[str, str]:
        """Tokens of all tenants and the administration; empty if none are required."""
        names = [tenant.name for tenant in self.scenario.tenants]
        return read_tokens(self.live, names, os.environ) or {}

    @property
    def models(self) -> tuple[str, ...]:
        models = (
            next(iter(tenant.served.values())).service.profile.model
            for tenant in self.scenario.tenants
        )
        return tuple(dict.fromkeys(models))

    def _name_on(self, gpu: str) -> str:
        """The name of the scenario of one GPU."""
        return f"{quote(self.name, '')}-{quote(gpu, '')}"

    @property
    def _first(self) -> LiveScenario:
        """Settings that all GPUs share, read on a board that can serve the first tenant."""
        return self._read_anywhere(self.scenario.tenants[0])

    def _read_anywhere(self, tenant: ClusterTenant) -> LiveScenario:
        """The tenant alone on the first GPU that can serve it; the parser requires one."""
        able = (gpu.name for gpu in self.scenario.gpus if gpu.board.name in tenant.served)
        return self.read(next(able), self.entry(tenant.name))

    def _parsed(self, board: Board, entry: Mapping[str, Any]) -> LiveScenario:
        tenant = {key: value for key, value in entry.items() if key not in _OF_CLUSTERS}
        base = {key: value for key, value in self.data.items() if key != "cluster"}
        settings = {"gpu": board.name, "windows": self.scenario.windows}
        data = {**base, **settings, "tenants": [tenant]}
        return parse_live(data, folder=Path(self.folder), name=self.name)


def read_run(
    path: Path, *, driver: str, shared: str | None, state: Path, began_s: float
) -> ClusterRun:
    """Read the cluster in a scenario file; InputError names the file, the key and the remedy.

    `shared`: None for a folder of this machine.
    """

    def parse(data: object) -> ClusterRun:
        parse_cluster(data, folder=path.parent, name=path.stem)
        assert isinstance(data, dict)
        name = data.get("name") or path.stem
        folder, state_folder = str(path.parent.absolute()), state.absolute()
        store = shared or str(state_folder / "cluster" / quote(name, "") / "shared")
        run = ClusterRun(name, data, folder, driver, store, str(state_folder), began_s)
        run.live_on_any()  # checks what only live serving needs
        return run

    return read_yaml_file(path, parse, CLUSTER, SCENARIO)


def _combined(
    read: Sequence[LiveScenario], settings: LiveScenario, name: str, board: Board
) -> LiveScenario:
    """The tenants of several scenarios with the settings of one."""
    served = tuple(alone.scenario.tenants[0] for alone in read)
    scenario = replace(settings.scenario, name=name, board=board, tenants=served)
    return replace(settings, scenario=scenario, tenants=tuple(alone.tenants[0] for alone in read))
