"""Verbs that inspect a GPU: `migrator gpu list | show | doctor`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migrator.cli.app import REFUSED, AsJson, State, app, print_json
from migrator.core.errors import InputError, MigratorError
from migrator.gpu.drivers.base import DriverKind

if TYPE_CHECKING:
    from migrator.core.catalogue import Board, MigProfile, Place
    from migrator.gpu.drivers.base import Gpu, GpuDriver, GpuInstance
    from migrator.gpu.partitioner import Partitioner

Row = dict[str, Any]
Owners = Mapping["Place", str]
"""Owners of the instances that are in the journal."""

group = typer.Typer(
    no_args_is_help=True,
    help="Divide a GPU: change one instance, leave the others running.\n\n"
    "Look:  migrator gpu list  and  migrator gpu show\n\n"
    "Change:  migrator gpu apply layout.yaml --dry-run  and then without --dry-run\n\n"
    "Trouble:  migrator gpu doctor",
)
app.add_typer(group, name="gpu")


DriverOption = Annotated[
    str | None,
    typer.Option(
        "--driver",
        metavar="mig|mps|emulated",
        help="What divides the GPU: its MIG hardware, MPS shares on any GPU, or nothing real; "
        "default mig where there is a GPU, else emulated.",
    ),
]
Index = Annotated[
    int, typer.Option("--gpu", metavar="INDEX", help="Which GPU, as nvidia-smi numbers them.")
]
BoardName = Annotated[
    str | None,
    typer.Option(
        "--board",
        metavar="NAME",
        help="What the emulated GPU is when it is first used (`migrator boards` lists them).",
    ),
]


@dataclass(frozen=True)
class GpuTarget:
    """The GPU that a verb acts on."""

    driver: str
    index: int
    state: Path
    board: str | None

    def open(self) -> AbstractContextManager[GpuDriver]:
        from migrator.gpu.drivers.registry import open_driver

        return open_driver(self.driver, self.index, state=self.state, board=self.board)

    @contextmanager
    def partitioner(self, owner: str, *, read_only: bool = False) -> Iterator[Partitioner]:
        """A partitioner, for plans only if `read_only`; reports a journal that was set aside."""
        from migrator.gpu.journal import Journal, describe_set_aside, journal_path
        from migrator.gpu.partitioner import Partitioner

        if not owner.strip() or not owner.isprintable():
            raise InputError("--owner: the name is empty or not printable; give a plain name")
        path = journal_path(self.state)
        with self.open() as driver, Journal(path, read_only=read_only) as journal:
            if journal.damaged is not None:
                say(describe_set_aside(journal.damaged))
            yield Partitioner(driver, journal, owner)


def target(
    driver: str | None,
    index: int,
    state: Path | None,
    board: str | None,
    *,
    read_only: bool = False,
) -> GpuTarget:
    """The GPU that the options name; reports a driver that was chosen by default.

    `read_only`: a real GPU can be inspected without a state folder.
    """
    from migrator.gpu.drivers.registry import default_driver
    from migrator.io.folders import state_folder

    name = driver or (DriverKind.EMULATED if board is not None else default_driver())
    if driver is None and board is None and name == DriverKind.EMULATED:
        say("no GPU found, using the emulated one; `--driver mig` says what is missing")
    try:
        folder = state_folder(state)
    except InputError as error:
        if not read_only or name != DriverKind.MIG:
            raise
        say(str(error))
        folder = state or Path(os.devnull)
    return GpuTarget(name, index, folder, board)


def say(note: str) -> None:
    """Print a note to stderr."""
    print(f"note: {note}", file=sys.stderr)


# Verbs


@group.command("list")
def list_gpus(
    driver: DriverOption = None,
    index: Annotated[
        int | None, typer.Option("--gpu", metavar="INDEX", help="Only this one; default all.")
    ] = None,
    state: State = None,
    board: BoardName = None,
    as_json: AsJson = False,
) -> None:
    """List every GPU with its board, its MIG mode and its instances as PROFILE@START.

    A GPU that cannot be read has its error in its line, and the exit code is 3.

    Example:  migrator gpu list --driver emulated
    """
    from migrator.report.terminal import aligned

    chosen = target(driver, index or 0, state, board, read_only=True)
    rows = _rows(chosen, index)
    if as_json:
        print_json({"driver": chosen.driver, "gpus": rows})
    else:
        cells = [
            (str(row["index"]), row.get("board", ""), *_mode_and_instances(row)) for row in rows
        ]
        print(f"driver {chosen.driver}")
        heads = ("GPU", "board", "MIG mode", "instances")
        print(aligned([heads, *cells], text_columns=4) if cells else "no GPUs")
    if any("error" in row for row in rows):
        raise typer.Exit(REFUSED)


@group.command()
def show(
    driver: DriverOption = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    as_json: AsJson = False,
) -> None:
    """Draw a GPU: its slices, its instances with owners and processes, and what still fits.

    --json also has the environment that a worker needs on each instance.

    Example:  migrator gpu show --gpu 1
    """
    chosen = target(driver, index, state, board, read_only=True)
    with chosen.open() as opened:
        gpu, instances = opened.gpu(), opened.instances()
        environments = {instance: _environment(opened, instance) for instance in instances}
    owners, unfinished = _read_journal(chosen, gpu, instances)
    if as_json:
        row = _shown_json(gpu, instances, owners, environments)
        print_json(row | {"unfinished": unfinished})
        return
    print(_heading(chosen.driver, gpu), end="\n\n")
    print(slices(gpu.board, instances), end="\n\n")
    if instances:
        print(_instance_table(instances, owners), end="\n\n")
        names = sorted(
            {name for environment in environments.values() for name in environment or ()}
        )
        if names:
            print(f"a worker needs {', '.join(names)}: `show --json` has the values", end="\n\n")
    print(_profile_table(gpu.board, instances))
    for change in unfinished:
        print(f"\nunfinished: {change}; the next change settles it first")


@group.command()
def doctor(
    driver: DriverOption = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    as_json: AsJson = False,
) -> None:
    """Check for problems and print what to run; exit with 3 if there is one.

    Example:  sudo migrator gpu doctor --driver mig
    """
    from migrator.gpu.doctor import Check, Severity, examine

    try:
        chosen = target(driver, index, state, board, read_only=True)
        checks = examine(chosen.driver, index, chosen.state, board=board)
    except MigratorError as error:
        checks = (Check("state folder", Severity.PROBLEM, str(error)),)
    if as_json:
        keys = ("name", "verdict", "words", "run")
        print_json({"checks": [dict(zip(keys, astuple(check), strict=True)) for check in checks]})
    for check in () if as_json else checks:
        print(f"{check.severity:<8} {check.name:<13} {check.message}")
        if check.run and check.severity is not Severity.OK:
            print(f"{'':<8} {'':<13} run: {check.run}")
    if any(check.severity is Severity.PROBLEM for check in checks):
        raise typer.Exit(REFUSED)


def _rows(chosen: GpuTarget, only: int | None) -> list[Row]:
    """A row per GPU; the error of a single GPU is raised."""
    from migrator.gpu.drivers.registry import gpu_indices

    rows: list[Row] = []
    indices = gpu_indices(chosen.driver, chosen.state) if only is None else (only,)
    for index in indices:
        try:
            with replace(chosen, index=index).open() as driver:
                rows.append(_gpu_json(driver.gpu(), driver.instances()))
        except MigratorError as error:
            if len(indices) == 1:
                raise
            rows.append({"index": index, "error": str(error)})
    return rows


def _environment(driver: GpuDriver, instance: GpuInstance) -> dict[str, str] | None:
    """The environment of a worker on the instance; None if nothing can run there."""
    from migrator.gpu.drivers.mps import MpsDriver

    if instance.uuid is None:
        return None
    # showing a GPU starts no daemon
    ask = driver.described if isinstance(driver, MpsDriver) else driver.environment
    return dict(ask(instance))


def _mode_and_instances(row: Row) -> tuple[str, str]:
    if "error" in row:
        return "", row["error"]
    marks = {True: "", False: " (half-made)"}
    places = [
        f"{instance['profile']}@{instance['start']}{marks[bool(instance['uuid'])]}"
        for instance in row["instances"]
    ]
    return "on" if row["mig_mode"] else "off", " ".join(places) or "none"


def _read_journal(
    chosen: GpuTarget, gpu: Gpu, instances: tuple[GpuInstance, ...]
) -> tuple[dict[Place, str], list[str]]:
    """Owners of the instances, and unfinished changes, according to the journal."""
    from migrator.gpu.journal import Journal, journal_path, match_entries

    try:
        with Journal(journal_path(chosen.state), read_only=True) as journal:
            begun, entries = journal.unfinished(gpu), journal.entries(gpu)
            changes = [
                f"{change.owner}'s change, begun by process {change.pid}" for change in begun
            ]
            matched = match_entries(instances, entries)
            return {place: entry.owner for place, (_, entry) in matched.items()}, changes
    except MigratorError as error:
        say(str(error))
        return {}, []


# What they print


def _heading(driver: str, gpu: Gpu) -> str:
    """The GPU and its driver."""
    version = "" if gpu.driver_version == driver else f" {gpu.driver_version}"
    mode = "on" if gpu.divides else "off: no instance can be created"
    if driver == "mps":
        mode = "off: instances are MPS shares"
    return (
        f"GPU {gpu.index}  {gpu.board.name}  {gpu.name}  {gpu.uuid}\n"
        f"driver {driver}{version}, MIG mode {mode}"
    )


def slices(board: Board, instances: Sequence[GpuInstance]) -> str:
    """The memory slices from left to right with the instances on them."""
    from migrator.report.page import Slab, Use
    from migrator.report.terminal import slices_text

    slabs = [
        Slab(
            None,
            Use.SERVING,
            "",
            instance.place.start,
            board.profile(instance.place.profile).memory_slices,
            0.0,
            1.0,
            instance.place.profile,
        )
        for instance in instances
    ]
    return slices_text(slabs, board.memory_slices, widest=100)


def _instance_table(instances: Sequence[GpuInstance], owners: Owners) -> str:
    """One line per instance: start, profile, owner, processes, UUID."""
    from migrator.report.terminal import aligned

    rows = [
        (
            str(instance.place.start),
            instance.place.profile,
            owners.get(instance.place, "not ours"),
            ", ".join(map(str, instance.holders)) or "none",
            instance.uuid or "none: no compute instance",
        )
        for instance in instances
    ]
    return aligned([("at", "profile", "owner", "used by", "uuid"), *rows], text_columns=5)


def _profile_table(board: Board, instances: Sequence[GpuInstance]) -> str:
    """The board's MIG profiles and where each still fits."""
    from migrator.report.terminal import aligned

    rows = [
        (
            profile.name,
            str(profile.gpcs),
            "?" if profile.sms is None else str(profile.sms),
            "?" if profile.memory_gib is None else f"{profile.memory_gib:g}",
            " ".join(map(str, room(board, instances, profile))) or "nowhere",
        )
        for profile in board.profiles
    ]
    return aligned([("MIG profile", "GPCs", "SMs", "GiB", "fits at"), *rows], text_columns=5)


def room(board: Board, instances: Sequence[GpuInstance], profile: MigProfile) -> tuple[int, ...]:
    """The starts at which one more instance of the profile fits beside the existing ones."""
    from migrator.core.catalogue import Place
    from migrator.gpu.layout import Layout, arrangements

    places = tuple(instance.place for instance in instances)

    def fits(start: int) -> bool:
        try:
            next(arrangements(board, Layout((*places, Place(start, profile.name)))))
        except InputError:
            return False
        return True

    return tuple(filter(fits, sorted(profile.starts)))


def _gpu_json(gpu: Gpu, instances: Sequence[GpuInstance]) -> Row:
    """A GPU and its instances as JSON."""
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "board": gpu.board.name,
        "driver": gpu.driver,
        "driver_version": gpu.driver_version,
        "mig_mode": gpu.divides and gpu.driver != DriverKind.MPS,
        "instances": [
            {
                "start": instance.place.start,
                "gpcs": gpu.board.profile(instance.place.profile).gpcs,
                "profile": instance.place.profile,
                "number": instance.number,
                "uuid": instance.uuid,
                "holders": [asdict(holder) for holder in instance.holders],
            }
            for instance in instances
        ],
    }


def _shown_json(
    gpu: Gpu,
    instances: Sequence[GpuInstance],
    owners: Owners,
    environments: Mapping[GpuInstance, dict[str, str] | None],
) -> Row:
    """The same with the owner and worker environment of every instance, and the profiles that
    fit."""
    row = _gpu_json(gpu, instances)
    for shown, instance in zip(row["instances"], instances, strict=True):
        shown |= {"owner": owners.get(instance.place), "environment": environments[instance]}
    row["profiles"] = [
        {
            "profile": profile.name,
            "gpcs": profile.gpcs,
            "sms": profile.sms,
            "memory_gib": profile.memory_gib,
            "starts": list(profile.starts),
            "fits_at": list(room(gpu.board, instances, profile)),
        }
        for profile in gpu.board.profiles
    ]
    return row
