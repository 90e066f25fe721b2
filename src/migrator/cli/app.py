"""The `migrator` command. Its verbs are defined in the modules beside this one.

Errors of verbs become one message on standard error and an exit code.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from io import TextIOWrapper
from types import FrameType
from typing import Annotated, NoReturn

import typer

from migrator import __version__
from migrator.cli.printing import BAD_INPUT, FAILED, REFUSED, complain
from migrator.core.errors import GpuError, InfeasibleError, InputError, MigratorError

INTERRUPTED = 130
_OBJECTS_BETWEEN_COLLECTIONS = 200_000
_HANDING_OVER = ("numba/core/serialize.py", "llvmlite/binding/executionengine.py")
"""Files in which compiled code calls Python: an exception there would crash or be lost."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Plan, second by second, which MIG instance serves or retrains which model.\n\n"
    "One window:  migrator example > window.json  and  "
    "migrator plan window.json --figure plan.html\n\n"
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
    # rarely, not never: garbage collection during imports would take a tenth of a second
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 50, 50)
    for number in (signal.SIGINT, signal.SIGALRM):
        signal.signal(number, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals without the characters of plans
    code = _run()
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _report_write_error(error)
    sys.exit(code)


def _report_write_error(error: OSError) -> int:
    """Report why standard output cannot be written, and drop the remaining output."""
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


def _exit_code(error: MigratorError) -> int:
    if isinstance(error, InputError):
        return BAD_INPUT
    return REFUSED if isinstance(error, GpuError) else FAILED


def _run() -> int:
    try:
        app()
    except SystemExit as done:
        if done.code == INTERRUPTED:  # typer has caught it already
            complain("interrupted")
        return done.code if isinstance(done.code, int) else FAILED
    except MigratorError as error:
        complain(f"infeasible: {error}" if isinstance(error, InfeasibleError) else str(error))
        return _exit_code(error)
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except OSError as error:
        return _report_write_error(error)
    return 0
