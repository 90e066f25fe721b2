"""The `migrator` command, and the output that its verbs share.

Errors of verbs become one message on standard error and an exit code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from migrator import __version__
from migrator.core.errors import (
    GpuError,
    InfeasibleError,
    InputError,
    MigratorError,
    PolicyError,
    PolicyWarning,
)
from migrator.core.problem import Charge
from migrator.core.registry import is_import_path

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
ScenarioFile = Annotated[Path, typer.Argument(help="Scenario file, version 1 (YAML).")]
Forecaster = Annotated[
    str | None, typer.Option(metavar="NAME", help="Forecaster; default: the scenario's.")
]
Windows = Annotated[
    int | None, typer.Option(metavar="N", help="Number of windows; default: the scenario's.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the arrivals; default: the scenario's.")]
Figure = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw the result as FILE.html or FILE.png.")
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Runs in parallel; default: one per core.")
]
Drawn = Annotated[
    bool,
    typer.Option(
        "--drawn/--expected",
        help="Draw at random whether each answer is correct, or count the expected accuracy.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, max=1024, help="GPUs of a cluster run in parallel; default: one per core."
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Run on this Ray cluster (`auto`: the one running here); default: RAY_ADDRESS if ray "
        "is installed, otherwise local processes.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FOLDER",
        help="Folder of records, models, labels, the journal and emulated GPUs; default: "
        "MIGRATOR_STATE or the user's.",
    ),
]
ScenarioName = Annotated[
    str | None,
    typer.Option("--scenario", metavar="NAME", help="Which one; default the one written last."),
]
Url = Annotated[
    str | None,
    typer.Option("--url", help="Address of the daemon; default: from its records."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the admin token; default: MIGRATOR_ADMIN_TOKEN.",
    ),
]

Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="CAs, in PEM, that https servers are verified with; default: SSL_CERT_FILE or the "
        "system's.",
    ),
]


BAD_INPUT, FAILED, REFUSED, INTERRUPTED = 2, 1, 3, 130
"""Exit codes. REFUSED: the GPU driver refused, or the GPU is not in the expected state."""
_HANDING_OVER = ("numba/core/serialize.py", "llvmlite/binding/executionengine.py")
"""Files in which compiled code calls Python: an exception there would crash or be lost."""
_SERVE = ("httptools", "msgspec", "prometheus_client", "starlette", "uvicorn")
_EXTRAS = {
    "grpc": ("google.protobuf", "grpc"),
    "serve": _SERVE,
    "cluster": (*_SERVE, "fsspec", "ray"),
}
"""Extra -> modules that its verbs always import."""

_SHOW_WARNING = warnings.showwarning

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Plan, second by second, which MIG instance serves or retrains which model.\n\n"
    "One window:  migrator example > window.yaml  and  "
    "migrator plan window.yaml --figure plan.html\n\n"
    "Whole runs:  migrator example quickstart > my.yaml  and  "
    "migrator simulate my.yaml --report run.html",
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"migrator {__version__}")
        raise typer.Exit


def main() -> NoReturn:
    """Run a verb. Errors become one message and an exit code, never a traceback."""
    for number in (signal.SIGINT, signal.SIGALRM):
        signal.signal(number, _interrupt)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals without the characters of plans
    warnings.showwarning = _show_warning
    code = _run()
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _report_os_error(error)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Discard what goes to streams that are closed, whose numbers files would get otherwise."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except OSError:
        return True
    return False


def _report_os_error(error: OSError) -> int:
    """Report a path that cannot be used, or that standard output cannot be written; its rest is
    dropped then."""
    if error.filename is not None:
        complain(
            f"{error.filename}: {error.strerror}; check the path, its permissions and the space "
            "on its disk"
        )
        return BAD_INPUT
    if _folder_is_gone():
        complain("the current folder is gone; change to another one")
        return BAD_INPUT
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):  # a reader such as head or less has closed the pipe
        complain(f"the answer could not be written: {error.strerror}; free some space")
    return FAILED


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but not while a compiled kernel returns its result: retry then."""
    if frame is not None and frame.f_code.co_filename.endswith(_HANDING_OVER):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        return
    raise KeyboardInterrupt


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    """Print warnings about a user's policy as one line, others as Python does."""
    if isinstance(message, PolicyWarning):
        say(f"warning: {message}")
    else:
        _SHOW_WARNING(message, *where, **more)


def _run() -> int:
    try:
        app()
    except SystemExit as done:
        if done.code == INTERRUPTED:  # typer has caught it already
            complain("interrupted")
        return done.code if isinstance(done.code, int) else FAILED
    except MigratorError as error:
        is_own = isinstance(error, PolicyError) and is_import_path(error.policy)
        if isinstance(error, PolicyError) and not is_own:  # a mistake of ours: to be reported
            print(error.own_traceback, end="", file=sys.stderr)
        complain(f"infeasible: {error}" if isinstance(error, InfeasibleError) else str(error))
        if is_own or isinstance(error, InputError):
            return BAD_INPUT
        return REFUSED if isinstance(error, GpuError) else FAILED
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except OSError as error:
        return _report_os_error(error)
    return 0


# Output


def require_extra(extra: str, what: str) -> None:
    """InputError if a module of the extra is not installed; imports none of its modules."""
    if not all(map(_is_installed, _EXTRAS[extra])):
        raise InputError(f"{what} needs the extra '{extra}': pip install 'migrator-gpu[{extra}]'")


def require_known(file: Path, *, policy: str | None, forecaster: str | None) -> None:
    """InputError that begins with the scenario's file if it names an unknown policy or forecaster.

    None: an option is used instead of the scenario's.
    """
    from migrator.forecast.selection import forecaster as forecaster_named
    from migrator.policies.registry import policy as policy_named

    with naming(file):
        if policy is not None:
            policy_named(policy)
        if forecaster is not None:
            forecaster_named(forecaster)


@contextmanager
def naming(file: Path | None) -> Iterator[None]:
    """Begin every InputError with the file that gave the input; None: no file did."""
    try:
        yield
    except InputError as error:
        raise error if file is None else InputError(f"{file}: {error}") from error


def _is_installed(module: str) -> bool:
    """Whether the module can be found; that of a submodule imports the packages above it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


def complain(sentence: str) -> None:
    """Print an error message to standard error."""
    print(f"error: {sentence}", file=sys.stderr)


def require_confirmation(yes: bool) -> None:
    """InputError if confirmation is needed and there is no terminal to ask on."""
    if not yes and not sys.stdin.isatty():
        raise InputError("--yes: no terminal to confirm on; pass --yes")


def confirm(consequence: str, yes: bool) -> None:
    """Ask on standard error whether to continue, unless `yes`; exit code 1 if not confirmed."""
    if yes:
        return
    print(f"{consequence} Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain("nothing was done; it was not confirmed")
        raise typer.Exit(FAILED)


def say(sentence: str) -> None:
    """Print a progress line to standard error, unbuffered."""
    with suppress(OSError):  # a terminal that was closed must not end what is going on
        print(sentence, file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print a value as JSON on one line."""
    print(json.dumps(value, allow_nan=False), flush=True)  # flush: a process may be reading


def warm(policies: Iterable[str]) -> None:
    """Load the planners of these policies; print a notice if they have to be compiled first."""
    from migrator.planning.planners import ready
    from migrator.policies.policy import Sight
    from migrator.policies.registry import policy

    if any(policy(name).sight is not Sight.NOTHING for name in set(policies)):
        for charge in (Charge.SURVIVORS, Charge.PAPER):  # the first one needs all kernels
            ready(charge)


@contextmanager
def progress(steps: int, what: str) -> Iterator[Callable[[], None]]:
    """A progress bar that advances with every call; none if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=steps)
        yield lambda: bar.advance(task)
