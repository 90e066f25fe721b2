"""What the fake keeps on disk: boards, instances, processes and the faults still to happen.

One file of JSON lines, the last whole line counts: a process killed at any moment leaves the state
before a call or the one after it. (Replacing a file instead costs milliseconds on ext4.) Whoever
changes it holds a lock that the kernel takes back from the dead.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError

TAIL, FULL = 1 << 14, 1 << 19
"""Bytes: what is read to find the last line, and when the file is begun anew."""


@dataclass
class ComputeInstance:
    """A compute instance; `serial` is never given twice, its number is."""

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
    """A process on a compute instance, or on the whole GPU where `serial` is None."""

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
        """One that nothing on this GPU has had."""
        self.serial += 1
        return self.serial


@dataclass
class Fault:
    """A fault to happen `left` times yet (None: until mended), once `after` calls went well."""

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
    """The state in its folder, shared between processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path, self._lock = str(folder / "state.jsonl"), str(folder / "lock")
        self._bytes = b""
        self._state = State("", [])

    def exists(self) -> bool:
        """Whether somebody has begun one here."""
        return bool(self._line())

    def now(self) -> State:
        """The state to look at, never to change."""
        found = self._read()
        if found != self._bytes:
            self._state, self._bytes = _parsed(found), found
        return self._state

    @contextmanager
    def changing(self) -> Iterator[State]:
        """The state to change; kept when the block ends without an exception."""
        with self._locked():
            found = self._read()
            state = _parsed(found)
            yield state
            self._keep(state, found)

    def begin(self, state: State) -> None:
        """Writes the first state, unless another process was faster."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
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
        """The last whole line; empty where there is none."""
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
            new = Path(f"{self._path}.new")
            new.write_bytes(after + b"\n")
            new.replace(self._path)
        self._state, self._bytes = state, after

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # opened anew each time: an inherited descriptor would share its lock with a fork
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _last(text: bytes, *, whole: bool) -> bytes | None:
    """The last line that ends; None where `text`, not the whole file, may begin inside it."""
    stop = text.rfind(b"\n")
    start = text.rfind(b"\n", 0, max(0, stop)) + 1
    if stop < 0 or (start == 0 and not whole):
        return None
    return text[start:stop]


def _mended(descriptor: int) -> int:
    """Cuts off what a killed process has not ended; the size of the file then."""
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
