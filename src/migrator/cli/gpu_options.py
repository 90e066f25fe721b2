"""Options of the verbs of `migrator gpu`, and the GPU they act on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app
from migrator.core.errors import InputError
from migrator.gpu.drivers.base import DriverKind

if TYPE_CHECKING:
    from migrator.gpu.drivers.base import GpuDriver
    from migrator.gpu.partition.partitioner import Partitioner

group = typer.Typer(
    no_args_is_help=True,
    help="Divide a GPU: change one instance, leave the others running.\n\n"
    "Look:  migrator gpu list  and  migrator gpu show\n\n"
    "Change:  migrator gpu apply layout.yaml --dry-run  and then without --dry-run\n\n"
    "Trouble:  migrator gpu doctor",
)
app.add_typer(group, name="gpu")


DriverOption = Annotated[
    DriverKind | None,
    typer.Option(
        "--driver",
        help="What divides the GPU: its MIG hardware, MPS shares on any GPU, or nothing real; "
        "default mig where there is a GPU, else emulated.",
    ),
]
Index = Annotated[
    int, typer.Option("--gpu", metavar="INDEX", help="Which GPU, as nvidia-smi numbers them.")
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FOLDER",
        help="Where the journal and emulated GPUs live; default MIGRATOR_STATE or the user's.",
    ),
]
BoardName = Annotated[
    str | None,
    typer.Option(
        "--board",
        metavar="NAME",
        help="What the emulated GPU is when it is first used (`migrator boards` lists them).",
    ),
]
LayoutGiven = Annotated[
    str,
    typer.Argument(
        metavar="LAYOUT", help="Layout file (YAML or JSON), or a mig-parted file as FILE:NAME."
    ),
]
LayoutName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Which layout of a mig-parted file.")
]
Owner = Annotated[
    str, typer.Option(metavar="NAME", help="Whose instances these are in the journal.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the steps, change nothing on the GPU.")
]
Looking = Annotated[
    bool, typer.Option("--dry-run", hidden=True, help="This verb never changes anything.")
]
WaitS = Annotated[
    float,
    typer.Option(
        "--wait-s",
        min=0,
        metavar="SECONDS",
        help="How long to wait for processes that use what must go; they are never killed.",
    ),
]


@dataclass(frozen=True)
class Target:
    """The GPU that a verb acts on."""

    driver: str
    index: int
    state: Path
    board: str | None
    limit_memory: bool = False

    @contextmanager
    def opened(self) -> Iterator[GpuDriver]:
        """Open its driver."""
        from migrator.gpu.drivers.registry import open_driver

        with open_driver(
            self.driver,
            self.index,
            state=self.state,
            board=self.board,
            limit_memory=self.limit_memory,
        ) as driver:
            yield driver

    @contextmanager
    def partitioner(self, owner: str, *, read_only: bool = False) -> Iterator[Partitioner]:
        """A partitioner, for plans only if `read_only`; reports a journal that was set aside."""
        from migrator.gpu.journal.journal import Journal, describe_set_aside
        from migrator.gpu.partition.partitioner import Partitioner

        if not owner.strip() or not owner.isprintable():
            raise InputError("--owner: the name is empty or not printable; give a plain name")
        with self.opened() as driver, Journal(self.journal, read_only=read_only) as journal:
            if journal.damaged is not None:
                say(describe_set_aside(journal.damaged))
            yield Partitioner(driver, journal, owner)

    @property
    def journal(self) -> Path:
        """The path of the journal, which may not exist."""
        from migrator.gpu.journal.journal import journal_path

        return journal_path(self.state)


def target(
    driver: DriverKind | None,
    index: int,
    state: Path | None,
    board: str | None,
    *,
    read_only: bool = False,
) -> Target:
    """The GPU that the options name; reports a driver that was chosen by default.

    `read_only`: a real GPU can be inspected without a state folder.
    """
    from migrator.io.state_folder import state_folder

    if index < 0:
        raise InputError(f"--gpu: {index} is not a GPU's number; they begin with 0")
    name = str(driver) if driver else _default_driver(board)
    try:
        folder = state_folder(state)
    except InputError as error:
        if not read_only or name != DriverKind.MIG:
            raise
        say(str(error))
        folder = state or Path(os.devnull)
    return Target(name, index, folder, board)


def _default_driver(board: str | None) -> str:
    if board is not None:
        return str(DriverKind.EMULATED)
    from migrator.gpu.drivers.registry import default_driver

    name = default_driver()
    if name == DriverKind.EMULATED:
        say("no GPU found, using the emulated one; `--driver mig` says what is missing")
    return name


def say(note: str) -> None:
    """Print a note to stderr."""
    print(f"note: {note}", file=sys.stderr)
