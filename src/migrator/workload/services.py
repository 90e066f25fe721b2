"""How a scenario's tenants are served: profiles found, names given, nobody without an instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.import_path import FORM, parts_of
from migrator.core.placement import multisets
from migrator.core.profile import Profile
from migrator.core.profiles import on_board, profile
from migrator.core.service import Service
from migrator.io.strict import Location, key_path, listed, refuse, shown
from migrator.io.tenants import no_such_size, require_names, sizes_remedy
from migrator.io.text_file import beside
from migrator.workload.entries import TenantEntry
from migrator.workload.profile_file import read_profile


def services(tenants: Sequence[TenantEntry], board: Board, folder: Path) -> list[Service]:
    """How every tenant is served on the board; paths of profiles start from `folder`."""
    served = [
        service_of(each, ("tenants", index), board, folder) for index, each in enumerate(tenants)
    ]
    require_names([each.tenant for each in served])
    for index, service in enumerate(served):
        require_servable(service, ("tenants", index), board)
    _require_room(served, board)
    return served


def service_of(entry: TenantEntry, location: Location, board: Board, folder: Path) -> Service:
    """How one tenant would be served on the board; whether it can be is not asked."""
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
        # whoever measured it may have called it otherwise; the class is what is served
        return on_board(replace(found, model=entry.model), board.name)
    if entry.model not in (None, found.model):
        refuse(
            (*location, "model"),
            f"the profile file is of {shown(found.model)}, not of {shown(entry.model)}",
            "leave model out or name the other profile",
        )
    return on_board(found, board.name)


def _require_import_path(entry: TenantEntry, location: Location) -> None:
    """Only the form of a user's own model: nothing is imported to read a scenario."""
    path = entry.model or ""
    if parts_of(path) is None:
        refuse(location, f"{shown(path)} is no import path", f"write {FORM}")
    if entry.profile is None:
        refuse(
            location,
            f"nobody has measured {shown(path)} for the package",
            "name a profile file of it as profile",
        )


def require_servable(service: Service, location: Location, board: Board) -> None:
    """Refuse a tenant that no instance of the board could serve."""
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
