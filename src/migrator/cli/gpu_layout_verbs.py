"""Verbs for the layout of a GPU: `migrator gpu assert | export | apply | clear`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import REFUSED, AsJson, State, print_json
from migrator.cli.gpu_verbs import BoardName, DriverOption, Index, group, say, target
from migrator.core.errors import InputError
from migrator.gpu.drivers.base import DriverKind

if TYPE_CHECKING:
    from migrator.core.catalogue import Board
    from migrator.gpu.drivers.base import GpuDriver, GpuInstance
    from migrator.gpu.layout import Step
    from migrator.gpu.partitioner import Partitioner

_INTERRUPTED = "an earlier run was interrupted; its change is settled first"
LayoutGiven = Annotated[
    str,
    typer.Argument(
        metavar="LAYOUT", help="Layout file (YAML or JSON), or a mig-parted file as FILE:NAME."
    ),
]
Owner = Annotated[
    str, typer.Option(metavar="NAME", help="Whose instances these are in the journal.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the steps, change nothing on the GPU.")
]


@group.command("assert")
def assert_layout(
    layout: LayoutGiven,
    driver: DriverOption = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    as_json: AsJson = False,
) -> None:
    """Exit with 0 if the GPU has the layout LAYOUT; otherwise print the differences and exit with
    3.

    Example:  migrator gpu assert layout.yaml && start-my-workers
    """
    from migrator.gpu.layout import difference
    from migrator.gpu.layout_file import read_layout

    chosen = target(driver, index, state, board, read_only=True)
    with chosen.open() as opened:
        gpu, instances = opened.gpu(), opened.instances()
    wanted = read_layout(layout, gpu)
    for note in wanted.notes:
        say(note)
    differences = difference(instances, wanted.layout)
    if as_json:
        print_json({"as_wanted": not differences, "differences": differences.lines()})
    elif differences:
        print("\n".join(differences.lines()))
    else:
        print(f"GPU {gpu.index} is as {layout} says")
    if differences:
        raise typer.Exit(REFUSED)


@group.command()
def export(
    driver: DriverOption = None,
    index: Index = 0,
    state: State = None,
    board: BoardName = None,
    as_json: AsJson = False,
) -> None:
    """Print the current layout as a layout file, to be applied or asserted later.

    Example:  migrator gpu export > layout.yaml
    """
    from migrator.gpu.layout_file import layout_to_json, layout_to_yaml

    chosen = target(driver, index, state, board, read_only=True)
    with chosen.open() as opened:
        gpu, instances = opened.gpu(), opened.instances()
    for instance in instances:
        if instance.uuid is None:
            place = instance.place
            say(f"{place} has no compute instance and is left out; see `migrator gpu doctor`")
    places = [instance.place for instance in instances if instance.uuid is not None]
    if as_json:
        print_json(layout_to_json(gpu.board, places))
    else:
        print(layout_to_yaml(gpu.board, places), end="")


@group.command()
def apply(
    layout: LayoutGiven,
    driver: DriverOption = None,
    index: Index = 0,
    dry_run: DryRun = False,
    owner: Owner = "migrator",
    enable_mig: Annotated[
        bool,
        typer.Option(
            "--enable-mig", help="Switch MIG mode on first if it is off; the GPU may be reset."
        ),
    ] = False,
    state: State = None,
    board: BoardName = None,
    as_json: AsJson = False,
) -> None:
    """Bring a GPU to LAYOUT in the fewest steps. Kept and foreign instances are not touched.

    Example:  migrator gpu apply layout.yaml --dry-run

    Example:  migrator gpu apply config.yaml:all-balanced --gpu 1
    """
    from migrator.gpu.layout_file import read_layout

    chosen = target(driver, index, state, board)
    if enable_mig and chosen.driver != DriverKind.MIG:
        raise InputError(f"--enable-mig: {chosen.driver} has no MIG mode; leave it out")
    with chosen.partitioner(owner, read_only=dry_run) as partitioner:
        gpu = partitioner.driver.gpu()
        wanted = read_layout(layout, gpu)
        for note in wanted.notes:
            say(note)
        if dry_run:
            steps = partitioner.plan(wanted.layout)
            if partitioner.is_unfinished:
                say(_INTERRUPTED)
            if steps and not gpu.divides:
                then = "it is switched on first" if enable_mig else "give --enable-mig too"
                say(f"MIG mode of GPU {gpu.index} is off; without --dry-run {then}")
        else:
            if not gpu.divides and partitioner.plan(wanted.layout):
                _require_mode(partitioner.driver, enable_mig)
            steps = partitioner.apply(wanted.layout)
            _report_recovery(partitioner)
    _print_steps(gpu.board, steps, as_json, f"GPU {gpu.index} is as {layout} says already")


@group.command()
def clear(
    driver: DriverOption = None,
    index: Index = 0,
    dry_run: DryRun = False,
    owner: Owner = "migrator",
    state: State = None,
    board: BoardName = None,
    as_json: AsJson = False,
) -> None:
    """Destroy our unused instances, and print which ones are left and why.

    Example:  migrator gpu clear --dry-run
    """
    from migrator.gpu.layout import Op, Step

    chosen = target(driver, index, state, board)
    with chosen.partitioner(owner, read_only=dry_run) as partitioner:
        board_there = partitioner.driver.gpu().board
        if dry_run:
            unused = [instance.place for instance in partitioner.ours() if not instance.holders]
            steps = tuple(Step(Op.DESTROY, place) for place in unused)
        else:
            steps = partitioner.clear()
            _report_recovery(partitioner)
        gone = {step.place for step in steps}
        left = [
            instance for instance in partitioner.driver.instances() if instance.place not in gone
        ]
        for instance in left:
            say(f"{instance.place} is left: {_why_left(partitioner, instance)}")
    _print_steps(board_there, steps, as_json, f"nothing of {owner}'s to destroy")


def _require_mode(driver: GpuDriver, enable_mig: bool) -> None:
    """Switch MIG mode on if the operator asked for it; InputError otherwise."""
    from migrator.gpu.drivers.mig import MigDriver

    index = driver.gpu().index
    if not enable_mig or not isinstance(driver, MigDriver):
        raise InputError(
            f"MIG mode of GPU {index} is off and nothing was changed; add --enable-mig (as root, "
            f"with no process on the GPU), or run `nvidia-smi -i {index} -mig 1`"
        )
    driver.enable_mig()
    say(f"MIG mode of GPU {index} is on now")


def _why_left(partitioner: Partitioner, instance: GpuInstance) -> str:
    from migrator.gpu.layout import clear_command

    whose = partitioner.owners().get(instance.place)
    if whose is None:
        return "not ours"
    if whose != partitioner.owner:
        folder = partitioner.journal.path.parent
        command = clear_command(partitioner.driver.gpu(), whose, folder)
        return f"it is {whose}'s; `{command}` destroys it"
    holders = ", ".join(map(str, instance.holders))
    return f"in use by {holders}" if holders else "it appeared meanwhile"


def _report_recovery(partitioner: Partitioner) -> None:
    """Report the changes that an interrupted run left, and how they were settled."""
    report = partitioner.recovered
    if report.finished or report.undone:
        say(_INTERRUPTED)
    if report.forgotten:
        say(f"gone since the last run: {', '.join(map(str, report.forgotten))}")
    for note in report.unsettled:
        say(note)


def _print_steps(board: Board, steps: Sequence[Step], as_json: bool, nothing: str) -> None:
    if not as_json:
        print("\n".join(map(str, steps)) or nothing)
        return
    rows = [
        {
            "op": str(step.op),
            "start": step.place.start,
            "gpcs": board.profile(step.place.profile).gpcs,
            "profile": step.place.profile,
        }
        for step in steps
    ]
    print_json({"steps": rows})
