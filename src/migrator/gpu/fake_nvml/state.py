"""The fake's state on disk: boards, instances, processes and the faults that have yet to happen.

A file of JSON lines, of which the last complete line is the state. A process killed at any moment
leaves the state before a call or after it. (Replacing a file instead costs milliseconds on ext4.)
Writers hold a lock that the kernel releases when a process dies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.io.atomic import replace_file
from migrator.io.lock import hold_lock

TAIL, FULL = 1 << 14, 1 << 19
"""Sizes in bytes: of the tail that is read first, and of a file to rewrite.

The tail is read to find the last line.
"""


@dataclass
class ComputeInstance:
    """A compute instance. Its number may be reused, its `serial` never is."""

    number: int
    serial: int
    slices: int
    start: int


@dataclass
class Instance:
    """A GPU instance of the profile with NVML's number `enum`."""

    number: int
    serial: int
    enum: int
    start: int
    compute: list[ComputeInstance] = field(default_factory=list)


@dataclass
class Process:
    """A process on a compute instance, or on the whole GPU if `serial` is None."""

    pid: int
    serial: int | None


@dataclass
class FakeGpu:
    """One GPU of the fake machine."""

    board: str
    uuid: str
    mig: bool
    pending: bool
    serial: int = 0
    instances: list[Instance] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    def next_serial(self) -> int:
        """A serial that nothing on this GPU has had."""
        self.serial += 1
        return self.serial


@dataclass
class Fault:
    """A fault that happens `left` more times (None: until removed), after `after` successes."""

    kind: str
    left: int | None
    after: int
    seconds: float


@dataclass
class State:
    """The whole fake machine."""

    boot_id: str
    gpus: list[FakeGpu]
    faults: list[Fault] = field(default_factory=list)


class Store:
    """The state in its folder, shared among processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path, self._lock = folder / "state.jsonl", folder / "lock"
        self._bytes = b""
        self._state = State("", [])

    def exists(self) -> bool:
        """Whether the folder contains a state."""
        return bool(self._line())

    def now(self) -> State:
        """The current state; the caller must not change it."""
        found = self._read()
        if found != self._bytes:
            self._state, self._bytes = _parsed(found), found
        return self._state

    @contextmanager
    def changing(self) -> Iterator[State]:
        """The state to change. It is saved when the block ends without an exception."""
        with hold_lock(self._lock):
            found = self._read()
            state = _parsed(found)
            yield state
            self._keep(state, found)

    def begin(self, state: State) -> None:
        """Write the first state, unless another process has done so."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(self._lock):
            if not self.exists():
                self._keep(state, b"")

    def _read(self) -> bytes:
        line = self._line()
        if not line:
            raise InputError(
                f"{self.folder}: there is no fake NVML here; begin one with "
                f"`python -m migrator.gpu.fake_nvml {self.folder} board A100-40GB`"
            )
        return line

    def _line(self) -> bytes:
        """The last complete line; empty if there is none."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            size = os.fstat(descriptor).st_size
            line = _last(os.pread(descriptor, TAIL, max(0, size - TAIL)), whole=size <= TAIL)
            return _last(os.pread(descriptor, size, 0), whole=True) or b"" if line is None else line
        finally:
            os.close(descriptor)

    def _keep(self, state: State, before: bytes) -> None:
        after = json.dumps(state, default=vars).encode()
        if after == before:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = _mended(descriptor)
            os.write(descriptor, after + b"\n")
        finally:
            os.close(descriptor)
        if size > FULL:
            with replace_file(self._path, tag="new", sync=False) as draft:
                draft.write_bytes(after + b"\n")
        self._state, self._bytes = state, after


def _last(text: bytes, *, whole: bool) -> bytes | None:
    """The last complete line; None if `text` is only a part of the file and may start inside it."""
    stop = text.rfind(b"\n")
    start = text.rfind(b"\n", 0, max(0, stop)) + 1
    if stop < 0 or (start == 0 and not whole):
        return None
    return text[start:stop]


def _mended(descriptor: int) -> int:
    """Cut off the incomplete line of a killed process; return the resulting file size."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        size = os.pread(descriptor, size, 0).rfind(b"\n") + 1
        os.ftruncate(descriptor, size)
    return size


def _parsed(text: bytes) -> State:
    raw: dict[str, Any] = json.loads(text)
    return State(
        raw["boot_id"],
        [_gpu(each) for each in raw["gpus"]],
        [Fault(**each) for each in raw["faults"]],
    )


def _gpu(raw: dict[str, Any]) -> FakeGpu:
    instances = [
        Instance(**{**each, "compute": [ComputeInstance(**one) for one in each["compute"]]})
        for each in raw["instances"]
    ]
    processes = [Process(**each) for each in raw["processes"]]
    return FakeGpu(**{**raw, "instances": instances, "processes": processes})
