"""One retrainer process from the daemon's side: started, given a job, followed to its last word."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError

_LONGEST_LINE = 2**20
_LAST_BYTES = 4096

Progress = Callable[[float], None]
"""Given the part that is done, a few times a second at most."""


class RetrainerProcess:
    """It imports torch and waits for its one job; it ends with it, or with us."""

    def __init__(self, process: Process, log: int) -> None:
        self._process = process
        self._log: int | None = log
        self.pid = process.pid
        self.ended: str | None = None
        """Why we ended it."""

    @classmethod
    async def started(cls, environment: Mapping[str, str]) -> RetrainerProcess:
        """A new one that gets this environment; InputError where none can be started."""
        log: int | None = None
        try:
            log = _unnamed()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "migrator.live.retrainer",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=dict(environment),
                limit=_LONGEST_LINE,
                start_new_session=True,  # Ctrl-C on the terminal is the daemon's alone
            )
        except BaseException as error:
            if log is not None:
                os.close(log)
            if isinstance(error, OSError):
                raise InputError(
                    f"no process for a training can be started ({error.strerror or error}); "
                    "end others or make room"
                ) from error
            raise
        return cls(process, log)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.returncode is None

    async def give(self, job_file: Path, environment: Mapping[str, str], began_s: float) -> None:
        """Its job; one that has died meanwhile will be noticed when it is followed."""
        assert self._process.stdin is not None
        told = {
            "job": str(job_file),
            "environment": dict(environment),
            "began_s": began_s,
            "parent": os.getpid(),
        }
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            await self._process.stdin.drain()

    async def last_word(self, progress: Progress, limit_s: float | None) -> dict[str, Any]:
        """What it says at the end; empty where it ends without, or takes longer and is ended."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._followed(progress)
        except TimeoutError:
            self.end(f"it took longer than {limit_s:g} s")
            return {}

    def end(self, why: str) -> None:
        """Kill it, if it has not ended."""
        if self.alive:
            self.ended = self.ended or why
            with suppress(ProcessLookupError):
                self._process.kill()

    async def gone(self) -> str:
        """Wait until it has ended; why, in words."""
        code = await self._process.wait()
        # a pipe that nobody reads to its end would be closed only when it is collected
        assert self._process.stdin is not None
        self._process.stdin.close()
        said, log = "", self._log
        if log is not None:
            self._log, said = None, _last_line(log)
            os.close(log)
        return self.ended or f"its process ended (exit code {code}){said}"

    async def _followed(self, progress: Progress) -> dict[str, Any]:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                said: dict[str, Any] = json.loads(line)
            except ValueError:
                return {}  # cut off amid a line
            if "progress" not in said:
                return said
            progress(said["progress"])
        return {}


def _unnamed() -> int:
    """A file for its errors that is gone with whoever reads it."""
    log, path = tempfile.mkstemp(prefix="retrainer")
    Path(path).unlink()
    return log


def _last_line(log: int) -> str:
    end = os.fstat(log).st_size
    written = os.pread(log, _LAST_BYTES, max(0, end - _LAST_BYTES))
    lines = written.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
