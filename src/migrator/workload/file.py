"""The scenario file, version 1: from YAML to a `Scenario`.

pydantic checks shapes and ranges (entries.py). Relations between keys are checked here, in
services.py and in arrivals.py. Policies and forecasters stay names until the run starts.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.profiles import Curve
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.core.service import Service
from migrator.io.strict import (
    Location,
    by_size,
    key_path,
    refuse,
    require_version,
    shown,
    validated,
)
from migrator.io.yaml_file import read_yaml_file
from migrator.workload.arrivals import ArrivalSource, arrival_source, scaled_arrivals
from migrator.workload.drifts import drifts
from migrator.workload.entries import (
    PARTS,
    VERSION,
    RetrainingEntry,
    ScenarioEntry,
    WindowEntry,
)
from migrator.workload.services import tenant_services


def read_scenario(path: Path, seed: int | None = None, windows: int | None = None) -> Scenario:
    """The scenario in a file, with another seed or number of windows if given.

    Raises InputError with the file, the key and the remedy.
    """
    parse = partial(parse_scenario, folder=path.parent, name=path.stem, seed=seed, windows=windows)
    return read_yaml_file(path, parse)


def parse_scenario(
    data: object,
    *,
    folder: Path,
    name: str,
    seed: int | None = None,
    windows: int | None = None,
) -> Scenario:
    """The scenario in parsed YAML. Paths in it are relative to `folder`."""
    require_version(data, VERSION)
    file = validated(ScenarioEntry, data, PARTS, "the scenario", "YAML")
    _require_one_gpu(file)
    board = catalogue.board(file.gpu)
    slot_s = exact_slot_s(file.slot_s)
    window_s = whole_window_s(file.window_s, slot_s)
    seed = file.seed if seed is None else seed
    served = tenant_services(file.tenants, board, folder)
    drifting = [
        tenant_drifts(entry.retraining, ("tenants", index, "retraining"), each, board)
        for index, (entry, each) in enumerate(zip(file.tenants, served, strict=True))
    ]
    sources = [
        arrival_source(each.arrivals, ("tenants", index, "arrivals"), folder)
        for index, each in enumerate(file.tenants)
    ]
    count = windows or file.windows or default_windows(drifting, sources, window_s)
    tenants = [
        ServedTenant(
            each, *scaled_arrivals(come, each, board, window_s, count, (seed, index)), drift
        )
        for index, (each, come, drift) in enumerate(zip(served, sources, drifting, strict=True))
    ]
    return Scenario(
        name=scenario_name(file, name),
        board=board,
        window_s=float(window_s),
        slot_s=slot_s,
        windows=count,
        tenants=tuple(tenants),
        policy=file.policy,
        forecaster=file.forecaster,
        seed=seed,
        prepared=file.workers == "prepared",
    )


def _require_one_gpu(file: ScenarioEntry) -> None:
    if file.cluster is not None:
        refuse(
            ("cluster",),
            "this is a scenario of many GPUs, and one is asked for",
            "use `migrator cluster plan` or `migrator simulate`, or give gpu instead",
        )
    for index, each in enumerate(file.tenants):
        for key in ("count", "memory_gib"):
            if key in each.model_fields_set:
                refuse(("tenants", index, key), "this goes with cluster", "leave it out")


def scenario_name(file: ScenarioEntry, default: str) -> str:
    """The scenario's name, or the default."""
    if file.name is None:
        return default
    if not file.name.strip() or not file.name.isprintable():
        refuse(("name",), f"{shown(file.name)} is no name", "use letters and digits")
    return file.name


def exact_slot_s(slot_s: float) -> float:
    """The slot length in seconds, with a fraction made exact (1/3 has no exact decimal)."""
    if slot_s >= 1 and slot_s.is_integer():
        return slot_s
    parts = round(1 / slot_s)
    if parts < 1 or abs(parts * slot_s - 1) > 2e-4:
        refuse(
            ("slot_s",),
            f"{slot_s:g} s neither divide a second nor are whole seconds, and traces count seconds",
            "give 1, 2, 3, ... or 1/2, 1/3, 1/4, ... of a second",
        )
    return 1 / parts


def whole_window_s(window_s: float, slot_s: float) -> int:
    """The window length, checked to be whole seconds and whole slots."""
    if not window_s.is_integer():
        refuse(
            ("window_s",),
            f"{window_s:g} is not a whole number of seconds, and traces count seconds",
            f"give {window_s:.0f}",
        )
    slots = window_s / slot_s
    if abs(slots - round(slots)) > 1e-6:
        fits = max(1, int(slots)) * slot_s
        refuse(
            ("window_s",),
            f"{window_s:g} s are not a whole number of slots of {slot_s:g} s",
            f"give {fits:g} or {fits + slot_s:g}",
        )
    return int(window_s)


def tenant_drifts(
    entry: RetrainingEntry | None, location: Location, service: Service, board: Board
) -> tuple[Drift, ...]:
    """The drift of the tenant's data per window, as given at `location`."""
    if entry is None:
        return ()
    if (entry.dataset is None) == (entry.windows is None):
        given = "neither dataset nor windows is" if entry.dataset is None else "both are"
        refuse(location, f"{given} given", "give dataset or windows, or null for no retraining")
    if entry.dataset is None:
        return _own_drifts(entry, location, board)
    try:
        return drifts(entry.dataset, service.profile)
    except InputError as error:
        # The message begins with "dataset:", the last part of the key path.
        raise InputError(f"{key_path(location)}.{error}") from error


def _own_drifts(entry: RetrainingEntry, location: Location, board: Board) -> tuple[Drift, ...]:
    return tuple(
        Drift(
            each.accuracy_pre,
            each.accuracy_post,
            _seconds(each, (*location, "windows", index), board),
            each.accuracy_estimated,
        )
        for index, each in enumerate(entry.windows or ())
    )


def _seconds(entry: WindowEntry, location: Location, board: Board) -> Curve | None:
    if entry.seconds is None:
        if entry.accuracy_post != entry.accuracy_pre:
            refuse(
                (*location, "seconds"),
                "the key is missing, and the accuracy changes",
                "give the seconds of the retraining, or accuracies that are the same",
            )
        return None
    seconds = by_size(entry.seconds, (*location, "seconds"), board)
    points = sorted((float(board.sms_of(gpcs)), value) for gpcs, value in seconds.items())
    return Curve(tuple(points))


def default_windows(
    drifting: list[tuple[Drift, ...]], sources: list[ArrivalSource], window_s: int
) -> int:
    """The number of windows in which any tenant's data drifts.

    Limited by the traces; at least one.
    """
    wanted = max(len(each) for each in drifting)
    room = [each.windows(window_s) for each in sources]
    return max(1, min([wanted, *(each for each in room if each is not None)]))
