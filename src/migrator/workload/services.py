"""The services of a scenario's tenants: profiles, names, and whether they fit on the board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.placement import multisets
from migrator.core.profiles import Profile, on_board, profile
from migrator.core.registry import FORM, parts_of
from migrator.core.service import Service
from migrator.io.json_file import beside
from migrator.io.strict import (
    Location,
    key_path,
    listed,
    no_such_size,
    refuse,
    require_names,
    require_version,
    shown,
    sizes_remedy,
    validated,
)
from migrator.io.yaml_file import read_yaml_file
from migrator.workload.entries import PARTS, VERSION, ScenarioEntry, TenantEntry
from migrator.workload.profile_file import read_profile


def tenant_services(tenants: Sequence[TenantEntry], board: Board, folder: Path) -> list[Service]:
    """The services of all tenants on the board. Paths of profiles are relative to `folder`."""
    served = [
        tenant_service(each, ("tenants", index), board, folder)
        for index, each in enumerate(tenants)
    ]
    require_names([each.tenant for each in served])
    for index, service in enumerate(served):
        require_servable(service, ("tenants", index), board)
    _require_room(served, board)
    return served


def tenant_service(entry: TenantEntry, location: Location, board: Board, folder: Path) -> Service:
    """The service of one tenant on the board, without a check that the board can serve it."""
    known = _profile(entry, location, board, folder)
    name = known.model.rpartition(":")[2] if entry.name is None else entry.name
    return Service(name, known, entry.slo_ms / 1e3, entry.batch, entry.min_gpcs)


def _profile(entry: TenantEntry, location: Location, board: Board, folder: Path) -> Profile:
    own = entry.model is not None and ":" in entry.model
    if own:
        _require_import_path(entry, (*location, "model"))
    if entry.profile is None:
        if entry.model is None:
            refuse((*location, "model"), "the key is missing", "give the name of a packaged model")
        try:
            return profile(entry.model, board.name)
        except InputError as error:
            raise InputError(f"{key_path(location)}.{error}") from error
    where = (*location, "profile")
    path = beside(folder, entry.profile, where)
    try:
        found = read_profile(path, entry.model)
    except InputError as error:
        raise InputError(f"{key_path(where)}: {error}") from error
    if own and entry.model is not None:
        # The profile may have another name for the class.
        return on_board(replace(found, model=entry.model), board.name)
    if entry.model not in (None, found.model):
        refuse(
            (*location, "model"),
            f"the profile file is of {shown(found.model)}, not of {shown(entry.model)}",
            "leave model out or name the other profile",
        )
    return on_board(found, board.name)


def _require_import_path(entry: TenantEntry, location: Location) -> None:
    """Check only the form of a user's import path. Reading a scenario imports nothing."""
    path = entry.model or ""
    if parts_of(path) is None:
        refuse(location, f"{shown(path)} is no import path", f"write {FORM}")
    if entry.profile is None:
        refuse(
            location,
            f"there is no packaged profile of {shown(path)}",
            "set profile to a profile file of it",
        )


def require_servable(service: Service, location: Location, board: Board) -> None:
    """Reject a tenant that no instance of the board can serve."""
    if service.min_gpcs not in board.sizes:
        refuse((*location, "min_gpcs"), no_such_size(board, service.min_gpcs), sizes_remedy(board))
    latency_s = service.latency_s(1, board.sms)
    if latency_s > service.slo_s:
        refuse(
            (*location, "slo_ms"),
            f"{service.slo_s * 1e3:g} ms are shorter than the {latency_s * 1e3:.3g} ms of one "
            f"request on the largest instance of {board.name}",
            f"give at least {latency_s * 1.1e3:.2g}",
        )


def _require_room(served: list[Service], board: Board) -> None:
    most = max(len(sizes) for sizes in multisets(board))
    if len(served) > most:
        refuse(
            ("tenants",),
            f"{len(served)} tenants need an instance each, and {board.name} has at most {most}",
            "leave some out",
        )
    needed = sorted((each.min_gpcs for each in served), reverse=True)
    for sizes in multisets(board):
        if len(sizes) >= len(needed) and all(
            has >= needs for has, needs in zip(sizes, needed, strict=False)
        ):
            return
    refuse(
        ("tenants",),
        f"instances of {listed(needed, last='and')} GPCs never fit {board.name} together",
        "lower min_gpcs",
    )


@dataclass(frozen=True)
class ServedModel:
    """A tenant's model and its service requirements."""

    tenant: str
    model: str
    slo_s: float
    batch: int


def read_models(path: Path) -> tuple[Board, list[ServedModel]]:
    """The board and the models of a scenario file. Arrivals and profiles may be missing."""
    return read_yaml_file(path, partial(_models, folder=path.parent))


def _models(data: object, *, folder: Path) -> tuple[Board, list[ServedModel]]:
    require_version(data, VERSION)
    file = validated(ScenarioEntry, data, PARTS, "the scenario", "YAML")
    found = []
    for index, each in enumerate(file.tenants):
        model = each.model or _measured_model(each, index, folder)
        if ":" in model and parts_of(model) is None:
            refuse(
                ("tenants", index, "model"),
                f"{shown(model)} is no import path",
                f"write {FORM}",
            )
        name = each.name or model.rpartition(":")[2]
        found.append(ServedModel(name, model, each.slo_ms / 1e3, each.batch))
    return catalogue.board(file.gpu), found


def _measured_model(entry: TenantEntry, index: int, folder: Path) -> str:
    location = ("tenants", index)
    if entry.profile is None:
        refuse((*location, "model"), "the key is missing", "name the model to measure")
    return read_profile(beside(folder, entry.profile, (*location, "profile"))).model
