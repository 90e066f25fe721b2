"""What the verbs of `migrator gpu` have in common: their options, and the GPU they speak to."""

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
from migrator.gpu.names import Driver

if TYPE_CHECKING:
    from migrator.gpu.driver import GpuDriver
    from migrator.gpu.partitioner import Partitioner

group = typer.Typer(
    no_args_is_help=True,
    help="Divide a GPU: change one instance, leave the others running.\n\n"
    "Look:  migrator gpu list  and  migrator gpu show\n\n"
    "Change:  migrator gpu apply layout.yaml --dry-run  and then without --dry-run\n\n"
    "Trouble:  migrator gpu doctor",
)
app.add_typer(group, name="gpu")


DriverName = Annotated[
    Driver | None,
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
    bool, typer.Option("--dry-run", hidden=True, help="Looking never changes anything.")
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
    """The GPU that a verb was asked about."""

    driver: str
    index: int
    state: Path
    board: str | None
    limit_memory: bool = False

    @contextmanager
    def opened(self) -> Iterator[GpuDriver]:
        """Its driver."""
        from migrator.gpu.drivers import opened

        with opened(
            self.driver,
            self.index,
            state=self.state,
            board=self.board,
            limit_memory=self.limit_memory,
        ) as driver:
            yield driver

    @contextmanager
    def partitioner(self, owner: str, *, looking: bool = False) -> Iterator[Partitioner]:
        """What changes it, or only plans where it is `looking`; a damaged journal is told."""
        from migrator.gpu.journal import Journal
        from migrator.gpu.journal_file import in_words
        from migrator.gpu.partitioner import Partitioner

        if not owner.strip() or not owner.isprintable():
            raise InputError("--owner: the name is empty or not printable; give a plain name")
        with self.opened() as driver, Journal(self.journal, looking=looking) as journal:
            if journal.damaged is not None:
                say(in_words(journal.damaged))
            yield Partitioner(driver, journal, owner)

    @property
    def journal(self) -> Path:
        """Where the journal is, or would be."""
        from migrator.gpu.survey import journal_path

        return journal_path(self.state)


def target(
    driver: Driver | None,
    index: int,
    state: Path | None,
    board: str | None,
    *,
    looking: bool = False,
) -> Target:
    """What the options name; a driver that nobody named is told.

    `looking`: a real GPU can be looked at without a state folder.
    """
    from migrator.gpu.state import state_folder

    if index < 0:
        raise InputError(f"--gpu: {index} is no GPU's number; they begin with 0")
    name = str(driver) if driver else _usual(board)
    try:
        folder = state_folder(state)
    except InputError as error:
        if not looking or name != Driver.MIG:
            raise
        say(str(error))
        folder = state or Path(os.devnull)
    return Target(name, index, folder, board)


def _usual(board: str | None) -> str:
    if board is not None:
        return str(Driver.EMULATED)
    from migrator.gpu.survey import usual_driver

    name = usual_driver()
    if name == Driver.EMULATED:
        say(
            "there is no GPU here, so the emulated one is used; `--driver mig` says what is missing"
        )
    return name


def say(note: str) -> None:
    """Something the user should know, beside the answer."""
    print(f"note: {note}", file=sys.stderr)
