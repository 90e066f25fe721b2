"""A scenario as the live runtime reads it: the simulator's scenario, and what only running needs.

`migrator serve` and `migrator load` read the same file, so that they agree on everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from migrator.core.curve import Curve
from migrator.core.scenario import HIGHEST_SEED, Scenario
from migrator.core.service import Service
from migrator.io.strict import Location, refuse, shown, validated
from migrator.io.text_file import beside
from migrator.io.yaml_file import read_yaml_file
from migrator.workload.entries import PARTS, ScenarioEntry, TenantEntry
from migrator.workload.file import parse_scenario
from migrator.workload.live_entries import LiveEntry, LiveTenantEntry

ADMIN = "admin"
"""The name that the administration's token goes by; no tenant may have it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a tenant may be called where its name is part of addresses and folders."""
_WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class Live:
    """Where the API listens, and what it takes at most."""

    host: str
    port: int
    """0: any that is free."""
    token_file: Path | None
    """Name -> token; None: see `token_variables`."""
    token_variables: Mapping[str, str] | None
    """Name -> environment variable; both None: no tokens are asked for."""
    max_body_mib: float
    queue_limit: int
    """Waiting requests per tenant."""
    connections: int


@dataclass(frozen=True)
class LiveTenant:
    """How one tenant's model is built, served and retrained."""

    service: Service
    classes: int | None
    """None: as many as its benchmark has."""
    pixels: int | None
    """None: the model's own."""
    weights: Path | None
    """safetensors to begin with; None: pre-trained on the benchmark's first classes."""
    benchmark: str | None
    """Where labelled samples come from; None: only from clients."""
    seed: int
    """What first weights and made-up samples follow."""
    epochs: int
    replay: int
    """Samples of every earlier class that are learned again."""
    held_out: float
    """Part of the labelled requests that is never trained on."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.service.tenant

    @property
    def model(self) -> str:
        """The name of a model of the zoo, or `package.module:Class`."""
        return self.service.profile.model

    def training_s(self, samples: int) -> Curve:
        """Seconds that a retraining on so many samples takes, over SMs, by its profile."""
        return self.service.profile.training_s(samples * self.epochs)


@dataclass(frozen=True)
class LiveScenario:
    """Everything a live run needs."""

    scenario: Scenario
    live: Live
    tenants: tuple[LiveTenant, ...]
    """In the scenario's order."""

    def tenant(self, name: str) -> LiveTenant:
        """The tenant called `name`."""
        return next(each for each in self.tenants if each.name == name)


def read_live(path: Path, seed: int | None = None, windows: int | None = None) -> LiveScenario:
    """The scenario in a file with its live keys; InputError names the file, the key, the remedy."""
    parse = partial(parse_live, folder=path.parent, name=path.stem, seed=seed, windows=windows)
    return read_yaml_file(path, parse)


def parse_live(
    data: object,
    *,
    folder: Path,
    name: str,
    seed: int | None = None,
    windows: int | None = None,
) -> LiveScenario:
    """The live scenario in YAML that has been read already; paths in it start from `folder`."""
    scenario = parse_scenario(data, folder=folder, name=name, seed=seed, windows=windows)
    file = validated(ScenarioEntry, data, PARTS, "the scenario", "YAML")
    tenants = tuple(
        _tenant(entry, served.service, ("tenants", index), folder, scenario.seed + index)
        for index, (entry, served) in enumerate(zip(file.tenants, scenario.tenants, strict=True))
    )
    return LiveScenario(scenario, _live(file.live or LiveEntry(), folder), tenants)


def _live(entry: LiveEntry, folder: Path) -> Live:
    location = ("live", "tokens")
    if entry.tokens is not None and entry.token_variables is not None:
        refuse(location, "token_variables is given as well", "keep one of them")
    return Live(
        host=entry.host,
        port=entry.port,
        token_file=None if entry.tokens is None else beside(folder, entry.tokens, location),
        token_variables=entry.token_variables,
        max_body_mib=entry.max_body_mib,
        queue_limit=entry.queue_limit,
        connections=entry.connections,
    )


def _tenant(
    entry: TenantEntry, service: Service, location: Location, folder: Path, seed: int
) -> LiveTenant:
    _require_name(service.tenant, (*location, "name"))
    live = entry.live or LiveTenantEntry()
    benchmark = live.benchmark or (entry.retraining.dataset if entry.retraining else None)
    if benchmark is None and live.classes is None:
        refuse(
            (*location, "live"),
            "how many classes its model tells apart is not said",
            "give classes, or a benchmark that has them",
        )
    return LiveTenant(
        service=service,
        classes=live.classes,
        pixels=live.pixels,
        weights=_weights(live.weights, (*location, "live", "weights"), folder),
        benchmark=benchmark,
        seed=min(seed, HIGHEST_SEED) if live.seed is None else live.seed,
        epochs=live.epochs,
        replay=live.replay,
        held_out=live.held_out,
    )


def _require_name(name: str, location: Location) -> None:
    if not _NAME.fullmatch(name):
        refuse(
            location,
            f"{shown(name)} cannot be part of an address",
            "use up to 64 letters, digits, hyphens, dots and underscores",
        )
    if name == ADMIN:
        refuse(location, f"{shown(name)} is what administration is called", "use another name")


def _weights(path: str | None, location: Location, folder: Path) -> Path | None:
    if path is None:
        return None
    file = beside(folder, path, location)
    if file.suffix != _WEIGHTS:
        refuse(location, f"{shown(path)} is no {_WEIGHTS} file", "save the weights in that format")
    if not file.is_file():
        refuse(location, f"there is no file {shown(str(file))}", "check the path")
    return file
