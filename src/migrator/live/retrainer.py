"""A process that retrains one model on one instance: `python -m migrator.live.retrainer [JOB]`.

`trainings` starts it, and gives it its job on the standard input once there is one: until then it
waits with torch imported and nothing of CUDA touched. It writes JSON lines: progress, then the
result or why there is none. It ends by itself when whoever started it is gone. Killed at any
moment, the same job goes on after its last finished epoch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import IO, Any

from migrator.core.errors import InputError
from migrator.gpu.virtual_board import held
from migrator.learn.registry import require_torch
from migrator.learn.samples import NoSamplesError
from migrator.live.training_job import job_from, result_json
from migrator.live.training_steps import Work

_TELL_S = 0.2
"""Between two words about progress."""
_LOOK_S = 0.5
"""Between two looks at whether its parent is there."""
_POLITE = 3
"""Serving comes first where it shares cores with trainings."""

Say = Callable[[Mapping[str, Any]], None]


def answer(job_file: Path, began_s: float, say: Say) -> None:
    """Do the job and say how it goes; every fault is said too."""
    try:
        kind, job = job_from(json.loads(job_file.read_text(encoding="utf-8")))
        with suppress(OSError):  # so that `ps` shows what each of them does
            Path("/proc/self/comm").write_text(f"{kind} {job.tenant}"[:15], encoding="utf-8")
        with held(os.environ, f"migrator {kind} {job.tenant}"):
            done = Work(kind, job, began_s, _seldom(say)).done()
            say({"result": result_json(done)})
    except NoSamplesError as error:
        say({"failed": str(error), "again": False, "empty": True})
    except InputError as error:
        say({"failed": str(error), "again": False})
    except (OSError, ValueError) as error:
        said = f"{job_file.name} cannot be done ({type(error).__name__}: {error})"
        say({"failed": f"{said}; see to its files and data", "again": False})
    except Exception as error:
        # of the board or of CUDA: the next process, elsewhere, may do better
        said = str(error).partition("\n")[0][:300]
        say({"failed": f"{type(error).__name__}: {said}; start it again", "again": True})


def _seldom(say: Say) -> Callable[[float], None]:
    """Progress, a few times a second at most."""
    last_s = 0.0

    def told(part: float) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= _TELL_S or part >= 1:
            last_s = now_s
            say({"progress": round(part, 4)})

    return told


def _sayer(stream: IO[str]) -> Say:
    def say(message: Mapping[str, Any]) -> None:
        try:
            stream.write(json.dumps(message) + "\n")
            stream.flush()
        except BrokenPipeError:
            os._exit(1)  # nobody listens any more

    return say


def _end_with(parent: int) -> None:
    """End this process once its parent is gone, whatever it is doing."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    Thread(target=look, name="parent", daemon=True).start()


def main() -> None:
    """JOB, or a line with the job; whatever a library prints goes to the errors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    _end_with(os.getppid())
    say = _sayer(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    os.nice(_POLITE)
    try:
        _load_torch()
    except InputError as error:
        say({"failed": str(error), "again": False})
        return
    if len(sys.argv) > 1:
        answer(Path(sys.argv[1]), time.monotonic(), say)
        return
    told = _asked()
    os.environ.update(told["environment"])
    answer(Path(told["job"]), told["began_s"], say)


def _load_torch() -> None:
    """All of it that a training needs, before there is one; CUDA is not touched."""
    require_torch()
    torch: Any = import_module("torch")
    # one thread: an instance is emulated by one core, however many there are
    torch.set_num_threads(1)
    if torch.version.cuda is None:
        # the first optimiser of a process loads a compiler, which takes as long as torch itself;
        # where that could look for GPUs it waits until the instance is known
        torch.optim.AdamW([torch.zeros(1, requires_grad=True)])


def _asked() -> dict[str, Any]:
    """The line with the job; without one nobody needs this process any more."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)
    asked: dict[str, Any] = json.loads(line)
    if asked["parent"] != os.getppid():
        sys.exit(1)  # gone before this process knew whom to look at
    return asked


if __name__ == "__main__":
    main()
