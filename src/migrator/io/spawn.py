"""Start and end of child processes: command, environment, output, exit.

Uses only the standard library, because profilers run on hosts that have nothing but torch.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import migrator
from migrator.core.errors import MigratorError

_PASSED_ON = re.compile(
    r"PATH|HOME|LANG|LD_LIBRARY_PATH|LD_PRELOAD|TMPDIR|TZ|VIRTUAL_ENV|XDG_CACHE_HOME|"
    r"MIGRATOR_(DAEMON|DATA|LOG_FORMAT|TRUST_REMOTE_CODE)|HF_(ENDPOINT|HOME|HUB_CACHE|HUB_OFFLINE)|"
    r"(LC_|PYTHON|OMP_|CUDA_|NVIDIA_).*"
)
_SECRET = re.compile("TOKEN|SECRET|PASSWORD|CREDENTIAL|KEY")
"""Words in names of variables that are never passed on, as in NVIDIA_API_KEY."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables set to 1, because a process with a thread pool must not fork."""


class ChildLostError(MigratorError):
    """The process exited, was killed because it did not answer, or cannot be reached."""


def spawn(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    output: int | None = None,
    fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a Python module as a child with its own session and these variables.

    `output`: descriptor of the file that it writes to; None: that of this process. `fds`: further
    descriptors that it inherits.
    """
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=_with_sources(environment),
        pass_fds=tuple(fds),
        start_new_session=True,
    )


def child_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a child needs, without secrets; limits it to one thread."""
    kept = {
        name: value
        for name, value in environment.items()
        if _PASSED_ON.fullmatch(name) and not _SECRET.search(name)
    }
    return _with_sources({**kept, **dict.fromkeys(_ONE_THREAD, "1")})


def _with_sources(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables such that the child imports the same MIGRator."""
    sources = str(Path(migrator.__file__).parent.parent)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    paths = [sources, *(path for path in paths if path not in ("", sources))]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def exit_status(code: int) -> str:
    """An exit code in words."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


def one_line(error: BaseException) -> str:
    """An error as one line of text."""
    text = str(error).strip().partition("\n")[0][:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def end_on_request() -> Iterator[None]:
    """Context that SIGTERM ends, in the main thread; at its end the GPU has done what it was given.

    Under MPS a process that dies while the GPU works for it breaks all others on that GPU.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise _EndRequested

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _EndRequested:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends already
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            with suppress(RuntimeError):
                torch.cuda.synchronize()


class _EndRequested(BaseException):
    """Not an error of the model, which may catch those."""


@contextmanager
def exit_with_parent(end: int) -> Iterator[None]:
    """Context in which this process exits as soon as the other end of the socket is closed.

    `end`: the descriptor of this end.
    """
    stop, stopped = os.pipe()
    thread = Thread(target=exit_at_hangup, args=(end, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(stopped)
        thread.join()  # no other thread may run in a process that forks
        os.close(stop)


@contextmanager
def running_as_child(end: int, name: str) -> Iterator[None]:
    """Context in which this process has that name in `ps`, and ends with its parent or at SIGTERM.

    `end`: the descriptor of its end of the connection.
    """
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15], encoding="utf-8")
    with exit_with_parent(end), end_on_request(), suppress(BrokenPipeError):
        yield


def exit_at_hangup(end: int, stop: int | None = None) -> None:
    """Exit as soon as the other end of the socket is closed; return if `stop` hangs up first."""
    poll = select.poll()
    poll.register(end, select.POLLRDHUP)
    if stop is not None:
        poll.register(stop, 0)
    if end in dict(poll.poll()):
        os._exit(1)
