"""Verbs that inspect a GPU: `migrator gpu list | show | assert | export | doctor`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.gpu_options import (
    BoardName,
    DriverOption,
    Index,
    LayoutGiven,
    LayoutName,
    Looking,
    State,
    Target,
    group,
    say,
    target,
)
from migrator.cli.gpu_views import Row, gpu_json, shown_json
from migrator.cli.options import AsJson
from migrator.cli.printing import REFUSED, print_json
from migrator.core.errors import MigratorError

if TYPE_CHECKING:
    from migrator.core.placement import Place
    from migrator.gpu.drivers.base import Gpu, GpuDriver, GpuInstance


@group.command("list")
def list_gpus(
    driver: DriverOption = None,
    index: Annotated[
        int | None, typer.Option("--gpu", metavar="INDEX", help="Only this one; default all.")
    ] = None,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """List every GPU with its board, its MIG mode and its instances as PROFILE@START.

    A GPU that cannot be read has its error in its line, and the exit code is 3.

    Example:  migrator gpu list --driver emulated
    """
    del dry_run
    from migrator.cli.gpu_views import table

    asked = target(driver, index or 0, state, board, read_only=True)
    rows = _rows(asked, index)
    if as_json:
        print_json({"driver": asked.driver, "gpus": rows})
    else:
        cells = [
            (str(row["index"]), row.get("board", ""), _mode(row), row.get("error") or _short(row))
            for row in rows
        ]
        print(f"driver {asked.driver}")
        print(table(("GPU", "board", "MIG mode", "instances"), cells) if cells else "no GPUs")
    if any("error" in row for row in rows):
        raise typer.Exit(REFUSED)


@group.command()
def show(
    driver: DriverOption = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """Draw a GPU: its slices, its instances with owners and processes, and what still fits.

    --json also has the environment that a worker needs on each instance.

    Example:  migrator gpu show --gpu 1
    """
    del dry_run
    from migrator.cli.gpu_views import heading, instance_table, profile_table, slices

    asked = target(driver, index, state, board, read_only=True)
    with asked.opened() as opened:
        gpu, instances = opened.gpu(), opened.instances()
        environments = {each: _environment(opened, each) for each in instances}
    owners, unfinished = _read_journal(asked, gpu, instances)
    if as_json:
        row = shown_json(gpu, instances, owners, environments)
        print_json(row | {"unfinished": unfinished})
        return
    print(heading(asked.driver, gpu), end="\n\n")
    print(slices(gpu.board, instances), end="\n\n")
    if instances:
        print(instance_table(instances, owners), end="\n\n")
        names = sorted({name for each in environments.values() for name in each or ()})
        if names:
            print(f"a worker needs {', '.join(names)}: `show --json` has the values", end="\n\n")
    print(profile_table(gpu.board, instances))
    for each in unfinished:
        print(f"\nunfinished: {each}; the next change continues from there")


@group.command("assert")
def assert_layout(
    layout: LayoutGiven,
    name: LayoutName = None,
    driver: DriverOption = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """Exit with 0 if the GPU has the layout LAYOUT; otherwise print the differences and exit with
    3.

    Example:  migrator gpu assert layout.yaml && start-my-workers
    """
    del dry_run
    from migrator.gpu.partition.layout import difference
    from migrator.gpu.partition.layout_file import read_layout

    asked = target(driver, index, state, board, read_only=True)
    with asked.opened() as opened:
        gpu, instances = opened.gpu(), opened.instances()
    wanted = read_layout(layout, gpu, name)
    for note in wanted.notes:
        say(note)
    found = difference(instances, wanted.layout)
    if as_json:
        print_json({"as_wanted": not found, "differences": found.words()})
    elif found:
        print("\n".join(found.words()))
    else:
        print(f"GPU {gpu.index} is as {layout} says")
    if found:
        raise typer.Exit(REFUSED)


@group.command()
def export(
    driver: DriverOption = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """Print the current layout as a layout file, to be applied or asserted later.

    Example:  migrator gpu export > layout.yaml
    """
    del dry_run
    from migrator.gpu.partition.layout_file import layout_to_json, layout_to_yaml

    asked = target(driver, index, state, board, read_only=True)
    with asked.opened() as opened:
        gpu, instances = opened.gpu(), opened.instances()
    for each in instances:
        if each.uuid is None:
            say(f"{each.place} has no compute instance and is left out; see `migrator gpu doctor`")
    places = [each.place for each in instances if each.uuid is not None]
    if as_json:
        print_json(layout_to_json(gpu.board, places))
    else:
        print(layout_to_yaml(gpu.board, places), end="")


@group.command()
def doctor(
    driver: DriverOption = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """Check for problems and print what to run; exit with 3 if there is one.

    Example:  sudo migrator gpu doctor --driver mig
    """
    del dry_run
    from migrator.gpu.doctor import Check, Verdict, examine

    try:
        asked = target(driver, index, state, board, read_only=True)
        checks = examine(asked.driver, index, asked.state, board=board)
    except MigratorError as error:
        checks = (Check("state folder", Verdict.PROBLEM, str(error)),)
    if as_json:
        print_json({"checks": [asdict(each) for each in checks]})
    for each in () if as_json else checks:
        print(f"{each.verdict:<8} {each.name:<13} {each.words}")
        if each.run and each.verdict is not Verdict.OK:
            print(f"{'':<8} {'':<13} run: {each.run}")
    if any(each.verdict is Verdict.PROBLEM for each in checks):
        raise typer.Exit(REFUSED)


def _rows(asked: Target, only: int | None) -> list[Row]:
    """A row per GPU; the error of a single GPU is raised."""
    from migrator.gpu.drivers.registry import gpu_indices

    wanted = gpu_indices(asked.driver, asked.state) if only is None else (only,)
    if len(wanted) == 1:
        return [_row(replace(asked, index=wanted[0]))]
    return [_row_or_error(replace(asked, index=each)) for each in wanted]


def _row(asked: Target) -> Row:
    with asked.opened() as driver:
        return gpu_json(driver.gpu(), driver.instances())


def _row_or_error(asked: Target) -> Row:
    try:
        return _row(asked)
    except MigratorError as error:
        return {"index": asked.index, "error": str(error)}


def _environment(driver: GpuDriver, instance: GpuInstance) -> dict[str, str] | None:
    """The environment of a worker on the instance; None if nothing can run there."""
    from migrator.gpu.drivers.mps import MpsDriver

    if instance.uuid is None:
        return None
    # showing a GPU starts no daemon
    ask = driver.described if isinstance(driver, MpsDriver) else driver.environment
    return dict(ask(instance))


def _mode(row: Row) -> str:
    if "error" in row:
        return ""
    return "on" if row["mig_mode"] else "off"


def _short(row: Row) -> str:
    marks = {True: "", False: " (half-made)"}
    words = [f"{e['profile']}@{e['start']}{marks[bool(e['uuid'])]}" for e in row["instances"]]
    return " ".join(words) or "none"


def _read_journal(
    asked: Target, gpu: Gpu, instances: tuple[GpuInstance, ...]
) -> tuple[dict[Place, str], list[str]]:
    """Owners of the instances, and unfinished changes, according to the journal."""
    from migrator.gpu.journal.entries import live_creates, match_creates
    from migrator.gpu.journal.journal import Journal

    try:
        with Journal(asked.journal, read_only=True) as journal:
            begun, creates = journal.unfinished(gpu), live_creates(journal.entries(gpu))
            words = [f"{each.owner}'s change, begun by process {each.pid}" for each in begun]
            there = match_creates(instances, creates)
            return {place: create.owner for place, (_, create) in there.items()}, words
    except MigratorError as error:
        say(str(error))
        return {}, []
