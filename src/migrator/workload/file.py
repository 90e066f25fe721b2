"""The scenario file, version 1: from YAML to a `Scenario`.

pydantic checks shapes and ranges (entries.py). Relations between keys are checked here and in
arrivals.py. Policies and forecasters stay names until the run starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

from migrator.core import catalogue
from migrator.core.catalogue import Board, multisets
from migrator.core.errors import InputError
from migrator.core.profiles import Curve, Profile, Service, on_board, profile, profile_of
from migrator.core.registry import FORM, is_import_path, parts_of
from migrator.core.scenario import (
    Drift,
    LabelsAt,
    OtherConfiguration,
    Overlap,
    PeerLimits,
    ResizedTraining,
    Scenario,
    ServedTenant,
    ShareSizes,
)
from migrator.io.data_file import beside, read_yaml_file
from migrator.io.file_kind import CLUSTER, SCENARIO
from migrator.io.strict import (
    Location,
    by_size,
    key_path,
    listed,
    refuse,
    refuse_size,
    require_names,
    shown,
)
from migrator.workload.arrivals import ArrivalSource, arrival_sources, scaled_arrivals
from migrator.workload.capacity import fit_together, least_gpcs
from migrator.workload.datasets import drifts, learned_a_window_later
from migrator.workload.entries import (
    ConfigurationEntry,
    PeersEntry,
    RetrainingEntry,
    ScenarioEntry,
    TenantEntry,
    WindowEntry,
    scenario_entry,
)
from migrator.workload.profile_file import read_profile

ASSUMED = "assumed"
"""In place of the path of a profile: assumed figures, for trials without a measurement."""


def read_scenario(path: Path, seed: int | None = None, windows: int | None = None) -> Scenario:
    """The scenario in a file, with another seed or number of windows if given.

    Raises InputError with the file, the key and the remedy.
    """
    parse = partial(parse_scenario, folder=path.parent, name=path.stem, seed=seed, windows=windows)
    return read_yaml_file(path, parse, SCENARIO, CLUSTER)


def parse_scenario(
    data: object,
    *,
    folder: Path,
    name: str,
    seed: int | None = None,
    windows: int | None = None,
) -> Scenario:
    """The scenario in parsed YAML. Paths in it are relative to `folder`."""
    file = scenario_entry(data)
    _require_one_gpu(file)
    board = catalogue.board(file.gpu)
    slot_s = exact_slot_s(file.slot_s)
    window_s = whole_window_s(file.window_s, slot_s)
    seed = file.seed if seed is None else seed
    served = tenant_services(file.tenants, board, folder)
    drifting = [
        tenant_drifts(
            entry.retraining,
            ("tenants", index, "retraining"),
            service,
            board,
            LabelsAt(file.labels),
        )
        for index, (entry, service) in enumerate(zip(file.tenants, served, strict=True))
    ]
    sources = arrival_sources(file.tenants, folder)
    count = windows or file.windows or default_windows(drifting, sources, window_s)
    tenants = [
        ServedTenant(
            service, *scaled_arrivals(source, service, board, window_s, count, (seed, index)), drift
        )
        for index, (service, source, drift) in enumerate(
            zip(served, sources, drifting, strict=True)
        )
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
        labels=LabelsAt(file.labels),
        peers=_peer_limits(file.peers or PeersEntry(), board),
    )


def _peer_limits(entry: PeersEntry, board: Board) -> PeerLimits:
    if entry.min_sms is not None and entry.min_sms > board.sms:
        refuse(
            ("peers", "min_sms"),
            f"{entry.min_sms:g} SMs are more than the {board.sms} of {board.name}",
            f"give at most {board.sms}",
        )
    return PeerLimits(
        entry.min_sms,
        ShareSizes(entry.shares),
        ResizedTraining(entry.resized_training),
        Overlap(entry.overlap),
        entry.workers == "prepared",
    )


def _require_one_gpu(file: ScenarioEntry) -> None:
    if file.cluster is not None:
        refuse(
            ("cluster",),
            "this is a scenario of many GPUs, and one is asked for",
            "use `migrator cluster plan` or `migrator simulate`, or give gpu instead",
        )
    for index, tenant in enumerate(file.tenants):
        for key in ("count", "memory_gib"):
            if key in tenant.model_fields_set:
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
    entry: RetrainingEntry | None,
    location: Location,
    service: Service,
    board: Board,
    labels: LabelsAt,
) -> tuple[Drift, ...]:
    """The drift of the tenant's data per window, as given at `location` for labels at the start."""
    if entry is None:
        return ()
    if entry.dataset is None and entry.windows is None and entry.configurations:
        _require_live(entry.configurations, (*location, "configurations"))
        return ()
    at_start = _given_drifts(entry, location, service, board)
    if entry.configurations is not None:
        at_start = _with_configurations(at_start, entry.configurations, location, board)
    return at_start if labels is LabelsAt.START else learned_a_window_later(at_start)


def _given_drifts(
    entry: RetrainingEntry, location: Location, service: Service, board: Board
) -> tuple[Drift, ...]:
    if (entry.dataset is None) == (entry.windows is None):
        problem = "neither dataset nor windows is" if entry.dataset is None else "both are"
        refuse(location, f"{problem} given", "give dataset or windows, or null for no retraining")
    if entry.dataset is None:
        return tuple(
            Drift(
                window.accuracy_pre,
                window.accuracy_post,
                _seconds(window, (*location, "windows", index, "seconds"), board),
                window.accuracy_estimated,
            )
            for index, window in enumerate(entry.windows or ())
        )
    try:
        return drifts(entry.dataset, service.profile)
    except InputError as error:
        # The message begins with "dataset:", the last part of the key path.
        raise InputError(f"{key_path(location)}.{error}") from error


def _with_configurations(
    drifts: tuple[Drift, ...],
    entries: Sequence[ConfigurationEntry],
    location: Location,
    board: Board,
) -> tuple[Drift, ...]:
    """The drifts of the first configuration, with those of the others.

    Without the others if they are for the live runtime only.
    """
    listed_at = (*location, "configurations")
    require_names([entry.name for entry in entries], listed_at, "configuration")
    first, *others = entries
    for key, given in (
        ("windows", first.windows is not None),
        ("memory_gib", first.memory_gib > 0),
    ):
        if given:
            refuse(
                (*listed_at, 0, key),
                "the first configuration is the one that dataset or windows describes",
                "leave it out",
            )
    if all(entry.windows is None and entry.is_live for entry in others):
        others = []
    rows = [
        _other_windows(entry, drifts, (*listed_at, index), board)
        for index, entry in enumerate(others, 1)
    ]
    return tuple(
        replace(
            drift,
            configuration=first.name,
            others=tuple(other for row in rows if (other := row[window]) is not None),
        )
        for window, drift in enumerate(drifts)
    )


def _require_live(entries: Sequence[ConfigurationEntry], location: Location) -> None:
    """Require configurations for the live runtime only: nothing describes the first one."""
    require_names([entry.name for entry in entries], location, "configuration")
    for index, entry in enumerate(entries):
        if entry.windows is not None:
            refuse(
                (*location, index, "windows"),
                "neither dataset nor windows describes the first configuration",
                "give dataset or windows beside configurations, or leave it out",
            )


def _other_windows(
    entry: ConfigurationEntry, drifts: tuple[Drift, ...], location: Location, board: Board
) -> list[OtherConfiguration | None]:
    """The configuration window by window; None where there is nothing to retrain."""
    windows, location = entry.windows or [], (*location, "windows")
    if len(windows) != len(drifts):
        wrong = f"{len(windows)} windows are given" if windows else "the key is missing"
        refuse(location, wrong, f"give {len(drifts)}, as many as the first configuration has")
    row: list[OtherConfiguration | None] = []
    for index, (window, drift) in enumerate(zip(windows, drifts, strict=True)):
        at = (*location, index, "seconds")
        if (window.seconds is None) != (drift.seconds is None):
            wrong = (
                "the key is missing" if window.seconds is None else "there is nothing to retrain"
            )
            refuse(
                at, wrong, "give seconds in the windows in which the first configuration has some"
            )
        if window.seconds is None:
            row.append(None)
            continue
        seconds = _curve(window.seconds, at, board)
        estimated, memory_gib = window.accuracy_estimated, entry.memory_gib
        row.append(
            OtherConfiguration(entry.name, window.accuracy_post, seconds, estimated, memory_gib)
        )
    return row


def _seconds(entry: WindowEntry, location: Location, board: Board) -> Curve | None:
    if entry.seconds is None:
        if entry.accuracy_post != entry.accuracy_pre:
            refuse(
                location,
                "the key is missing, and the accuracy changes",
                "give the seconds of the retraining, or accuracies that are the same",
            )
        return None
    return _curve(entry.seconds, location, board)


def _curve(by_gpcs: Mapping[str, float], location: Location, board: Board) -> Curve:
    seconds = by_size(by_gpcs, location, board)
    points = sorted((float(board.sms_of(gpcs)), value) for gpcs, value in seconds.items())
    return Curve(tuple(points))


def default_windows(
    drifting: list[tuple[Drift, ...]], sources: list[ArrivalSource], window_s: int
) -> int:
    """The number of windows in which any tenant's data drifts.

    Limited by the traces; at least one.
    """
    wanted = max(len(drift) for drift in drifting)
    room = [source.windows(window_s) for source in sources]
    return max(1, min([wanted, *(windows for windows in room if windows is not None)]))


def tenant_services(tenants: Sequence[TenantEntry], board: Board, folder: Path) -> list[Service]:
    """The services of all tenants on the board. Paths of profiles are relative to `folder`."""
    served = [
        tenant_service(tenant, ("tenants", index), board, folder)
        for index, tenant in enumerate(tenants)
    ]
    require_names([service.tenant for service in served])
    for index, service in enumerate(served):
        require_servable(service, ("tenants", index), board)
    _require_room(served, board)
    return served


def tenant_service(entry: TenantEntry, location: Location, board: Board, folder: Path) -> Service:
    """The service of one tenant on the board, without a check that the board can serve it."""
    measured = _profile(entry, location, board, folder)
    name = short_name(measured.model) if entry.name is None else entry.name
    serving = entry.slo_ms / 1e3, entry.batch, entry.min_gpcs
    return Service(name, measured, *serving, weight=entry.weight, floor=entry.floor)


def _profile(entry: TenantEntry, location: Location, board: Board, folder: Path) -> Profile:
    is_own_model = entry.model is not None and ":" in entry.model
    if is_own_model:
        _require_own_model(entry, (*location, "model"))
    if entry.profile == ASSUMED:
        return assumed_profile(entry, location, board)
    if entry.profile is None:
        if entry.model is None:
            refuse((*location, "model"), "the key is missing", "give the name of a packaged model")
        try:
            return profile(entry.model, board.name)
        except InputError as error:
            raise InputError(f"{key_path(location)}.{error}") from error
    where = (*location, "profile")
    path = beside(folder, entry.profile, where)
    if not path.exists():
        refuse(
            where,
            f"there is no file {shown(str(path))}",
            f"measure the models with `migrator profile SCENARIO --out {path}`, or write "
            f"`profile: {ASSUMED}` for a trial",
        )
    try:
        measured = read_profile(path, entry.model)
    except InputError as error:
        raise InputError(f"{key_path(where)}: {error}") from error
    if is_own_model and entry.model is not None:
        # The profile may have another name for the model.
        return on_board(replace(measured, model=entry.model), board.name)
    if entry.model not in (None, measured.model):
        refuse(
            (*location, "model"),
            f"the profile file is of {shown(measured.model)}, not of {shown(entry.model)}",
            "leave model out or name the other profile",
        )
    return on_board(measured, board.name)


def assumed_profile(entry: TenantEntry, location: Location, board: Board) -> Profile:
    """The profile for `profile: assumed`: of a small model, whatever the model is."""
    if entry.model is None:
        refuse((*location, "model"), "the key is missing", "name the model")
    text = files("migrator.workload").joinpath("assumed_profile.json").read_text(encoding="utf-8")
    return on_board(replace(profile_of(json.loads(text)), model=entry.model), board.name)


def short_name(model: str) -> str:
    """The class of an import path, or the last part of hf:owner/name@revision."""
    return model.rpartition(":")[2].partition("@")[0].rstrip("/").rpartition("/")[2]


def _require_own_model(entry: TenantEntry, location: Location) -> None:
    """Check only the form of a user's own model. Reading a scenario imports nothing."""
    path = entry.model or ""
    if is_import_path(path) and parts_of(path) is None:
        refuse(location, f"{shown(path)} is no import path", f"write {FORM}")
    if entry.profile is None:
        refuse(
            location,
            f"there is no packaged profile of {shown(path)}",
            "measure one with `migrator profile`, or write `profile: assumed` for a trial",
        )


def require_servable(service: Service, location: Location, board: Board) -> None:
    """Reject a tenant that no instance of the board can serve."""
    if service.min_gpcs not in board.sizes:
        refuse_size((*location, "min_gpcs"), service.min_gpcs, board)
    needed_mib = service.profile.serving_mib(service.batch)
    if needed_mib > board.memory_mib_of(board.sizes[-1]):
        refuse(
            (*location, "model"),
            f"serving it takes {needed_mib:,.0f} MiB and the largest instance of {board.name} "
            f"has {board.memory_mib_of(board.sizes[-1]):,.0f}",
            "use a smaller model or batch, or a board with more memory",
        )
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
    needed = sorted(
        (least_gpcs(service, board) or service.min_gpcs for service in served), reverse=True
    )
    if not fit_together(needed, board):
        refuse(
            ("tenants",),
            f"instances of {listed(needed, last='and')} GPCs never fit {board.name} together, and "
            "the tenants need them by min_gpcs, memory and objective",
            "lower min_gpcs, use smaller models or leave tenants out",
        )
