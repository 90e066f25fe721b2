"""Cluster scenarios: scenario files with `cluster`, from YAML to `ClusterScenario`; placements.

An entry with `count` defines several tenants. Each is checked on every board of the cluster,
because profiles and retraining times depend on the board.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from migrator.cluster.scenario import (
    ClusterGpu,
    ClusterScenario,
    ClusterService,
    ClusterTenant,
    Rules,
)
from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.scenario import Drift, LabelsAt, ServedTenant
from migrator.io.data_file import read_json_file, read_yaml_file
from migrator.io.file_kind import CLUSTER, PLACEMENT, SCENARIO
from migrator.io.strict import Location, nearest, refuse, require_names, shown
from migrator.workload.arrivals import ArrivalSource, arrival_sources, scaled_arrivals
from migrator.workload.capacity import highest_rps, least_gpcs
from migrator.workload.entries import (
    MOST_GPUS,
    MOST_TENANTS,
    ClusterEntry,
    RetrainingEntry,
    TenantEntry,
    WindowEntry,
    scenario_entry,
)
from migrator.workload.file import (
    default_windows,
    exact_slot_s,
    require_servable,
    scenario_name,
    tenant_drifts,
    tenant_service,
    whole_window_s,
)

_Kinds = list[dict[str, tuple[ClusterService, tuple[Drift, ...]]]]
"""Per entry: board -> its service and its drift there."""


def is_cluster(path: Path) -> bool:
    """Whether the file is a cluster scenario. One that cannot be read is not."""
    try:
        return read_yaml_file(path, lambda data: isinstance(data, dict) and "cluster" in data)
    except InputError:
        return False


def read_cluster(
    path: Path, seed: int | None = None, windows: int | None = None
) -> ClusterScenario:
    """The cluster scenario in a file, with another seed or number of windows if given."""
    parse = partial(parse_cluster, folder=path.parent, name=path.stem, seed=seed, windows=windows)
    return read_yaml_file(path, parse, CLUSTER, SCENARIO)


def parse_cluster(
    data: object,
    *,
    folder: Path,
    name: str,
    seed: int | None = None,
    windows: int | None = None,
) -> ClusterScenario:
    """The cluster scenario in parsed YAML. Paths are relative to `folder`."""
    file = scenario_entry(data)
    if file.cluster is None:
        refuse(("cluster",), "the key is missing", "give {gpus}, or run it on one GPU")
    if "gpu" in file.model_fields_set:
        refuse(("gpu",), "cluster is given as well", "name boards in cluster.gpus")
    gpus = _gpus(file.cluster)
    boards = {gpu.board.name: gpu.board for gpu in gpus}
    slot_s = exact_slot_s(file.slot_s)
    window_s = whole_window_s(file.window_s, slot_s)
    kinds = [
        _kind(tenant, index, boards, folder, LabelsAt(file.labels))
        for index, tenant in enumerate(file.tenants)
    ]
    sources = arrival_sources(file.tenants, folder)
    drifting = [next(iter(kind.values()))[1] for kind in kinds]
    count = windows or file.windows or default_windows(drifting, sources, window_s)
    seed = file.seed if seed is None else seed
    tenants = _tenants(file.tenants, kinds, sources, boards, window_s, count, seed)
    return ClusterScenario(
        name=scenario_name(file, name),
        gpus=gpus,
        tenants=tenants,
        rules=_rules(file.cluster, kinds, tenants),
        window_s=float(window_s),
        slot_s=slot_s,
        windows=count,
        policy=file.policy,
        forecaster=file.forecaster,
        seed=seed,
        prepared=file.workers == "prepared",
        labels=LabelsAt(file.labels),
    )


def _gpus(cluster: ClusterEntry) -> tuple[ClusterGpu, ...]:
    total = sum(gpu.count for gpu in cluster.gpus)
    if total > MOST_GPUS:
        refuse(("cluster", "gpus"), f"{total} GPUs are too many", f"give at most {MOST_GPUS}")
    gpus: list[ClusterGpu] = []
    for index, entry in enumerate(cluster.gpus):
        location = ("cluster", "gpus", index)
        board = _board(entry.board, (*location, "board"))
        _require_name(entry.name, (*location, "name"))
        names = _numbered(entry.name or board.name, entry.count, 1)
        gpus += [ClusterGpu(name, board, entry.node) for name in names]
    name, often = Counter(gpu.name for gpu in gpus).most_common(1)[0]
    if often > 1:
        refuse(
            ("cluster", "gpus"),
            f"several are called {shown(name)}",
            "give every entry a name of its own",
        )
    return tuple(gpus)


def _require_name(name: str | None, location: Location) -> None:
    if name is not None and not name.strip():
        refuse(location, "the name is empty", "give one, or leave it out for the board's")
    if name is not None and not name.isprintable():
        refuse(location, f"{shown(name)} cannot be printed", "use letters and digits")


def _board(name: str, location: Location) -> Board:
    """The board with this name. Rejected if the SMs of a size are not published."""
    try:
        board = catalogue.board(name)
        for gpcs in board.sizes:
            board.sms_of(gpcs)
    except InputError as error:
        reason = str(error).removeprefix("gpu: ")
        refuse(location, reason.partition(";")[0], reason.partition("; ")[2])
    return board


def _numbered(name: str, count: int, digits: int) -> list[str]:
    """The name itself, or NAME-1 to NAME-n with numbers padded to equal length."""
    if count == 1:
        return [name]
    width = max(digits, len(str(count)))
    return [f"{name}-{number:0{width}}" for number in range(1, count + 1)]


def _kind(
    entry: TenantEntry, index: int, boards: Mapping[str, Board], folder: Path, labels: LabelsAt
) -> dict[str, tuple[ClusterService, tuple[Drift, ...]]]:
    """The entry on each board that can serve it. Rejected if none can."""
    location: Location = ("tenants", index)
    on_boards: dict[str, tuple[ClusterService, tuple[Drift, ...]]] = {}
    refusal: InputError | None = None
    for name, board in boards.items():
        plain = tenant_service(entry, location, board, folder)
        service = ClusterService(**vars(plain), memory_gib=entry.memory_gib)
        try:
            require_servable(service, location, board)
            if least_gpcs(service, board) is None:
                refuse(
                    (*location, "memory_gib"),
                    f"no instance of {board.name} has {service.memory_gib:g} GiB",
                    "lower it or add a board with more memory",
                )
        except InputError as error:
            refusal = refusal or error
            continue
        if entry.retraining is not None and entry.retraining.configurations is not None:
            refuse(
                (*location, "retraining", "configurations"),
                "tenants of a cluster have one way to retrain",
                "leave it out",
            )
        retraining = _of_board(entry.retraining, board)
        drifts = tenant_drifts(retraining, (*location, "retraining"), service, board, labels)
        on_boards[name] = service, drifts
    if not on_boards and refusal is not None:
        raise refusal
    return on_boards


def _of_board(entry: RetrainingEntry | None, board: Board) -> RetrainingEntry | None:
    """The entry with only the retraining seconds of sizes that this board has.

    A window with none of these sizes is unchanged.
    """
    if entry is None or entry.windows is None:
        return entry
    return entry.model_copy(
        update={"windows": [_window_of(window, board) for window in entry.windows]}
    )


def _window_of(entry: WindowEntry, board: Board) -> WindowEntry:
    sizes = {str(gpcs) for gpcs in board.sizes}
    seconds = {size: value for size, value in (entry.seconds or {}).items() if size in sizes}
    return entry.model_copy(update={"seconds": seconds}) if seconds else entry


def _tenants(
    entries: Sequence[TenantEntry],
    kinds: _Kinds,
    sources: Sequence[ArrivalSource],
    boards: Mapping[str, Board],
    window_s: int,
    windows: int,
    seed: int,
) -> tuple[ClusterTenant, ...]:
    total = sum(entry.count for entry in entries)
    if total > MOST_TENANTS:
        refuse(("tenants",), f"{total} tenants are too many", f"give at most {MOST_TENANTS}")
    tenants: list[ClusterTenant] = []
    for index, (entry, kind, source) in enumerate(zip(entries, kinds, sources, strict=True)):
        fastest = _fastest(kind, boards)
        for name in _numbered(kind[fastest][0].tenant, entry.count, 3):
            number = (seed, len(tenants))
            trace, offset_s = scaled_arrivals(
                source, kind[fastest][0], boards[fastest], window_s, windows, number
            )
            served = {
                board: ServedTenant(replace(service, tenant=name), trace, offset_s, drifts)
                for board, (service, drifts) in kind.items()
            }
            tenants.append(ClusterTenant(name, index, served))
    require_names([tenant.name for tenant in tenants])
    return tuple(tenants)


def _fastest(kind: Mapping[str, tuple[ClusterService, object]], boards: Mapping[str, Board]) -> str:
    """The board with the highest capability for the kind. It decides whether a rate is rejected."""
    return max(kind, key=lambda name: highest_rps(kind[name][0], boards[name]))


def _rules(entry: ClusterEntry, kinds: _Kinds, tenants: Sequence[ClusterTenant]) -> Rules:
    called: dict[str, frozenset[str]] = {
        tenant.name: frozenset((tenant.name,)) for tenant in tenants
    }
    members: dict[int, set[str]] = {}
    for tenant in tenants:
        members.setdefault(tenant.entry, set()).add(tenant.name)
    for index, names in members.items():
        called.setdefault(next(iter(kinds[index].values()))[0].tenant, frozenset(names))
    apart = []
    for index, group in enumerate(entry.apart):
        for place, name in enumerate(group):
            if name not in called:
                meant = nearest(name, called)
                refuse(
                    ("cluster", "apart", index, place),
                    f"there is no tenant {shown(name)}",
                    f"did you mean {meant}?" if meant else "name a tenant of this file",
                )
        apart.append(frozenset[str]().union(*(called[name] for name in group)))
    return Rules(tuple(apart), entry.spare, entry.move_s)


def read_current(path: Path) -> dict[str, str]:
    """Read tenant -> GPU from the output of `migrator cluster plan --json`."""
    return read_json_file(path, _placement, PLACEMENT)


def _placement(data: object) -> dict[str, str]:
    if not isinstance(data, dict) or not isinstance(data.get("placement"), dict):
        raise InputError(
            "there is no placement in it; use the output of `migrator cluster plan --json`"
        )
    for tenant, gpu in data["placement"].items():
        if not isinstance(gpu, str):
            refuse(("placement", tenant), f"{shown(gpu)} is no GPU's name", "give its name as text")
    return dict(data["placement"])
