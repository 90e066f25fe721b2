"""Verbs that look at a GPU: `migrator gpu list | show | assert | export | doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migrator.cli.gpu_options import (
    BoardName,
    Driver,
    DriverName,
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
from migrator.cli.plan_verbs import AsJson
from migrator.cli.printing import REFUSED, print_json
from migrator.core.errors import MigratorError

if TYPE_CHECKING:
    from migrator.gpu.driver import Gpu, GpuInstance, Place

Row = dict[str, Any]


@group.command("list")
def list_gpus(
    driver: DriverName = None,
    index: Annotated[
        int | None, typer.Option("--gpu", metavar="INDEX", help="Only this one; default all.")
    ] = None,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """List every GPU: its board, its MIG mode, its instances as PROFILE@START.

    Example:  migrator gpu list --driver emulated
    """
    del dry_run
    from migrator.cli.gpu_text import table

    try:
        asked = target(driver, index or 0, state, board, looking=True)
        rows = list(_rows(asked, index))
    except MigratorError as error:
        say(str(error))
        asked, rows = None, []
    if as_json:
        print_json({"driver": asked.driver if asked else driver, "gpus": rows})
        return
    cells = [
        (str(row["index"]), row.get("board", ""), _mode(row), row.get("error") or _short(row))
        for row in rows
    ]
    if asked:
        print(f"driver {asked.driver}")
    print(table(("GPU", "board", "MIG mode", "instances"), cells) if cells else "no GPUs")


@group.command()
def show(
    driver: DriverName = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """Draw a GPU: its slices, whose every instance is, who uses it, and what still fits.

    Example:  migrator gpu show --gpu 1
    """
    del dry_run
    from migrator.cli.gpu_text import heading, instance_table, profile_table, slices

    asked = target(driver, index, state, board, looking=True)
    with asked.opened() as opened:
        gpu, instances = opened.gpu(), opened.instances()
    owners, unfinished = _written(asked)
    if as_json:
        row = _gpu_json(asked.driver, gpu, instances, owners)
        print_json(row | {"profiles": _profiles_json(gpu, instances), "unfinished": unfinished})
        return
    print(heading(asked.driver, gpu), end="\n\n")
    print(slices(gpu.board, instances), end="\n\n")
    if instances:
        print(instance_table(instances, owners), end="\n\n")
    print(profile_table(gpu.board, instances))
    for each in unfinished:
        print(f"\nunfinished: {each}; the next change finishes or undoes it")


@group.command("assert")
def assert_layout(
    layout: LayoutGiven,
    name: LayoutName = None,
    driver: DriverName = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """Exit with 0 if the GPU is as LAYOUT says, and else with 3 and what differs.

    Example:  migrator gpu assert layout.yaml && start-my-workers
    """
    del dry_run
    from migrator.gpu.difference import difference
    from migrator.gpu.layout_file import read_layout

    asked = target(driver, index, state, board, looking=True)
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
    driver: DriverName = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """Print the present layout as a layout file, to be applied or asserted later.

    Example:  migrator gpu export > layout.yaml
    """
    del dry_run
    from migrator.gpu.layout_file import layout_to_json, layout_to_yaml

    asked = target(driver, index, state, board, looking=True)
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
    driver: DriverName = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    dry_run: Looking = False,
    as_json: AsJson = False,
) -> None:
    """Look for what stands in the way, and say what to run; exit with 3 if there is a problem.

    Example:  sudo migrator gpu doctor --driver mig
    """
    del dry_run
    from migrator.gpu.check import Check, Verdict
    from migrator.gpu.doctor import examined

    try:
        asked = target(driver, index, state, board, looking=True)
        checks = examined(asked.driver, index, asked.state, board=board)
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


def _rows(asked: Target, only: int | None) -> Iterator[Row]:
    from migrator.gpu.survey import indices

    for each in indices(asked.driver, asked.state) if only is None else (only,):
        try:
            with replace(asked, index=each).opened() as driver:
                yield _gpu_json(asked.driver, driver.gpu(), driver.instances())
        except MigratorError as error:
            yield {"index": each, "error": str(error)}


def _mode(row: Row) -> str:
    if "error" in row:
        return ""
    return "on" if row["mig_mode"] else "off"


def _short(row: Row) -> str:
    marks = {True: "", False: " (half-made)"}
    words = [f"{e['profile']}@{e['start']}{marks[bool(e['uuid'])]}" for e in row["instances"]]
    return " ".join(words) or "none"


def _written(asked: Target) -> tuple[dict[Place, str], list[str]]:
    """Whose the instances are, and what was begun and never finished, as the journal has it."""
    if not asked.journal.exists():
        return {}, []
    try:
        with asked.partitioner("migrator") as partitioner:
            begun = partitioner.journal.unfinished(partitioner.driver.gpu())
            words = [f"{each.owner}'s change, begun by process {each.pid}" for each in begun]
            return dict(partitioner.owners()), words
    except MigratorError as error:
        say(str(error))
        return {}, []


def _gpu_json(
    driver: str,
    gpu: Gpu,
    instances: tuple[GpuInstance, ...],
    owners: dict[Place, str] | None = None,
) -> Row:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "board": gpu.board.name,
        "driver": driver,
        "driver_version": gpu.driver_version,
        "mig_mode": gpu.divides and driver != Driver.MPS,
        "instances": [_instance_json(gpu, each, owners) for each in instances],
    }


def _instance_json(gpu: Gpu, instance: GpuInstance, owners: dict[Place, str] | None) -> Row:
    place = instance.place
    whose = {} if owners is None else {"owner": owners.get(place)}
    return {
        "start": place.start,
        "gpcs": gpu.board.profile(place.profile).gpcs,
        "profile": place.profile,
        "number": instance.number,
        "uuid": instance.uuid,
        **whose,
        "holders": [asdict(each) for each in instance.holders],
    }


def _profiles_json(gpu: Gpu, instances: tuple[GpuInstance, ...]) -> list[Row]:
    from migrator.cli.gpu_text import room

    return [
        {
            "profile": each.name,
            "gpcs": each.gpcs,
            "sms": each.sms,
            "memory_gib": each.memory_gib,
            "starts": list(each.starts),
            "fits_at": list(room(gpu.board, instances, each)),
        }
        for each in gpu.board.profiles
    ]
