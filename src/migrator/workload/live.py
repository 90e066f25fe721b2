"""Live scenarios: the simulator's scenario with the `live` keys for serving and retraining.

`migrator serve` and `migrator load` read the same file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from migrator.core.errors import InputError
from migrator.core.profiles import Curve, Service
from migrator.core.scenario import HIGHEST_SEED, Scenario
from migrator.core.training import Layers, TrainingConfiguration
from migrator.io.data_file import beside, read_yaml_file
from migrator.io.file_kind import CLUSTER, SCENARIO
from migrator.io.strict import Location, refuse, shown
from migrator.io.tls import TlsFiles
from migrator.workload.entries import (
    ConfigurationEntry,
    LiveEntry,
    LiveTenantEntry,
    TenantEntry,
    TlsEntry,
    scenario_entry,
)
from migrator.workload.file import parse_scenario

ADMIN = "admin"
"""Name of the admin token. No tenant may have this name."""
STATISTICS = "stats"
"""GET /v2/models/stats describes all models."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Valid tenant names, which become parts of URLs and folders."""
_WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class Live:
    """Address and limits of the API."""

    host: str
    port: int
    """0 selects any free port."""
    token_file: Path | None
    """File of tokens by name; None: see `token_variables`."""
    token_variables: Mapping[str, str] | None
    """Environment variable of each token by name.

    If `token_file` is None too, no tokens are required.
    """
    max_body_mib: float
    queue_limit: int
    """Maximum number of waiting requests per tenant."""
    connections: int
    grpc_port: int | None = None
    """None: no API over gRPC; 0 selects any free port."""
    tls: TlsFiles | None = None
    """None: the API is not encrypted."""


@dataclass(frozen=True)
class LiveTenant:
    """Construction, serving and retraining of one tenant's model."""

    service: Service
    classes: int | None
    """Number of classes; None for that of its benchmark."""
    pixels: int | None
    """Image size; None for that of the model."""
    weights: Path | None
    """Initial weights in safetensors; None to pre-train on the benchmark's first classes."""
    benchmark: str | None
    """Source of labelled samples; None if only clients send them."""
    seed: int
    """Seed of initial weights and generated samples."""
    epochs: int
    """Of pre-training, and of a retraining that has no other ones."""
    replay: int
    """Number of replayed samples of each earlier class."""
    held_out: float
    """Fraction of the labelled requests that is never used for training."""
    input_pixels: int | None = None
    """Size of the images that clients send; None for that of the network."""
    named_configurations: tuple[TrainingConfiguration, ...] = ()
    """The ways to retrain that the scenario names; empty: one, with `epochs`."""
    retrain_after_labels: int | None = None
    """New labels with which it is retrained within a window; None: never."""
    retrain_after_drop: float | None = None
    """Loss of accuracy with which it is retrained within a window; None: never."""

    @property
    def configurations(self) -> tuple[TrainingConfiguration, ...]:
        """The ways to retrain, the first of which policies without a choice use."""
        return self.named_configurations or (TrainingConfiguration("", self.epochs),)

    @property
    def name(self) -> str:
        return self.service.tenant

    @property
    def model(self) -> str:
        """The name of a model of the zoo, or `package.module:Class`."""
        return self.service.profile.model

    def training_s(self, samples: int) -> Curve:
        """Seconds of a training of all layers on this number of samples over SMs, according to
        its profile."""
        return self.service.profile.training_s(samples * self.epochs)


@dataclass(frozen=True)
class LiveScenario:
    """A scenario with the settings of a live run."""

    scenario: Scenario
    live: Live
    tenants: tuple[LiveTenant, ...]
    """In the scenario's order."""

    def tenant(self, name: str) -> LiveTenant:
        return next(tenant for tenant in self.tenants if tenant.name == name)


def read_live(path: Path, seed: int | None = None, windows: int | None = None) -> LiveScenario:
    """The scenario in a file with its live keys.

    Raises InputError with the file, the key and the remedy.
    """
    parse = partial(parse_live, folder=path.parent, name=path.stem, seed=seed, windows=windows)
    return read_yaml_file(path, parse, SCENARIO, CLUSTER)


def has_live_keys(path: Path) -> bool:
    """Whether the scenario has keys that only `migrator serve` reads."""

    def parse(data: object) -> bool:
        file = scenario_entry(data)
        return file.live is not None or any(tenant.live is not None for tenant in file.tenants)

    return read_yaml_file(path, parse, SCENARIO, CLUSTER)


def parse_live(
    data: object,
    *,
    folder: Path,
    name: str,
    seed: int | None = None,
    windows: int | None = None,
) -> LiveScenario:
    """The live scenario in parsed YAML. Paths in it are relative to `folder`."""
    scenario = parse_scenario(data, folder=folder, name=name, seed=seed, windows=windows)
    file = scenario_entry(data)
    tenants = tuple(
        _tenant(entry, served.service, ("tenants", index), folder, scenario.seed + index)
        for index, (entry, served) in enumerate(zip(file.tenants, scenario.tenants, strict=True))
    )
    return LiveScenario(scenario, _live(file.live or LiveEntry(), folder), tenants)


def parse_tenant(section: object, beside_it: LiveScenario, folder: Path) -> LiveScenario:
    """A scenario with the settings of another one and the tenant of this section alone.

    Paths in the section are relative to `folder`. Raises InputError with the key and the remedy.
    """
    others = beside_it.scenario
    data = {
        "version": 1,
        "gpu": others.board.name,
        "window_s": others.window_s,
        "slot_s": others.slot_s,
        "windows": 1,
        # as it has at the end of the scenario's list
        "seed": min(others.seed + len(others.tenants), HIGHEST_SEED),
        "tenants": [section],
    }
    try:
        alone = parse_live(data, folder=folder, name=others.name)
    except InputError as error:
        raise InputError(str(error).removeprefix("tenants[0].")) from error
    scenario = replace(others, tenants=alone.scenario.tenants)
    return replace(beside_it, scenario=scenario, tenants=alone.tenants)


def _live(entry: LiveEntry, folder: Path) -> Live:
    location = ("live", "tokens")
    if entry.tokens is not None and entry.token_variables is not None:
        refuse(location, "token_variables is given as well", "keep one of them")
    return Live(
        **entry.model_dump(exclude={"tokens", "tls"}),
        token_file=None if entry.tokens is None else beside(folder, entry.tokens, location),
        tls=None if entry.tls is None else _tls(entry.tls, folder),
    )


def _tls(entry: TlsEntry, folder: Path) -> TlsFiles:
    location = ("live", "tls")
    return TlsFiles(
        beside(folder, entry.certificate, (*location, "certificate")),
        beside(folder, entry.key, (*location, "key")),
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
            "the number of classes of its model is missing",
            "give classes, or a benchmark that has them",
        )
    return LiveTenant(
        **live.model_dump(exclude={"weights", "benchmark", "seed"}),
        service=service,
        weights=_weights(live.weights, (*location, "live", "weights"), folder),
        benchmark=benchmark,
        seed=min(seed, HIGHEST_SEED) if live.seed is None else live.seed,
        named_configurations=_configurations(
            entry, live.epochs, (*location, "retraining", "configurations")
        ),
    )


def _configurations(
    entry: TenantEntry, epochs: int, location: Location
) -> tuple[TrainingConfiguration, ...]:
    """The configurations as the live runtime carries them out; no two may be the same there."""
    entries = (entry.retraining.configurations if entry.retraining else None) or []
    by_work: dict[tuple[int, float, Layers], TrainingConfiguration] = {}
    for index, written in enumerate(entries):
        made = _configuration(written, epochs)
        earlier = by_work.setdefault((made.epochs, made.part, made.layers), made)
        if earlier is not made:
            refuse(
                (*location, index),
                f"{shown(made.name)} is carried out as {shown(earlier.name)} is",
                "give it other epochs, another part or other layers",
            )
    return tuple(by_work.values())


def _configuration(entry: ConfigurationEntry, epochs: int) -> TrainingConfiguration:
    return TrainingConfiguration(
        entry.name,
        entry.epochs or epochs,
        entry.part or 1.0,
        Layers(entry.layers or Layers.ALL),
        entry.memory_gib,
    )


def _require_name(name: str, location: Location) -> None:
    if not _NAME.fullmatch(name):
        refuse(
            location,
            f"{shown(name)} cannot be part of an address",
            "use up to 64 letters, digits, hyphens, dots and underscores",
        )
    if name in (ADMIN, STATISTICS):
        what = "administration" if name == ADMIN else "a route of the API"
        refuse(location, f"{shown(name)} is what {what} is called", "use another name")


def _weights(path: str | None, location: Location, folder: Path) -> Path | None:
    if path is None:
        return None
    file = beside(folder, path, location)
    if file.suffix != _WEIGHTS:
        refuse(location, f"{shown(path)} is no {_WEIGHTS} file", "save the weights in that format")
    if not file.is_file():
        refuse(
            location,
            f"there is no file {shown(str(file))}",
            "save the model's weights there, or leave the key out to begin with pre-training",
        )
    return file
