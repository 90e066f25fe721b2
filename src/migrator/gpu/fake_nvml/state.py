"""The fake's state on disk: boards, instances, processes and the faults that have yet to happen.

A file of JSON lines, of which the last complete line is the state. A process killed at any moment
leaves the state before a call or after it. (Replacing a file instead costs milliseconds on ext4.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from migrator.core.errors import InputError
from migrator.io.atomic import replace_file
from migrator.io.lock import hold_lock

FULL = 1 << 16
"""Size in bytes from which the file is rewritten with its last line only."""


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


_STATE = TypeAdapter(State)


class Store:
    """The state in its folder, shared among processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path, self._lock = folder / "state.jsonl", folder / "lock"
        self._line, self._state = b"", State("", [])

    def exists(self) -> bool:
        """Whether the folder contains a state."""
        return bool(self._last_line())

    def now(self) -> State:
        """The current state; the caller must not change it."""
        line = self._read()
        if line != self._line:
            self._state, self._line = _STATE.validate_json(line), line
        return self._state

    @contextmanager
    def changing(self) -> Iterator[State]:
        """The state to change. It is saved when the block ends without an exception."""
        with hold_lock(self._lock):
            before = self._read()
            state = _STATE.validate_json(before)
            yield state
            self._append(state, before)

    def begin(self, state: State) -> None:
        """Write the first state, unless another process has done so."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(self._lock):
            if not self.exists():
                self._append(state, b"")

    def _read(self) -> bytes:
        line = self._last_line()
        if not line:
            raise InputError(
                f"{self.folder}: there is no fake NVML here; begin one with "
                f"`python -m migrator.gpu.fake_nvml {self.folder} board A100-40GB`"
            )
        return line

    def _last_line(self) -> bytes:
        """The last complete line; empty if there is none."""
        try:
            complete = self._path.read_bytes().rpartition(b"\n")[0]
        except FileNotFoundError:
            return b""
        return complete.rpartition(b"\n")[2]

    def _append(self, state: State, before: bytes) -> None:
        after = _STATE.dump_json(state)
        if after == before:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                # A process was killed while it wrote its line.
                os.ftruncate(descriptor, os.pread(descriptor, size, 0).rfind(b"\n") + 1)
            os.write(descriptor, after + b"\n")
        finally:
            os.close(descriptor)
        if size > FULL:
            with replace_file(self._path, tag="new", sync=False) as draft:
                draft.write_bytes(after + b"\n")
        self._state, self._line = state, after
