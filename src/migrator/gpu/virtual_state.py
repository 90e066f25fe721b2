"""The file beneath a virtual board: what is on it, read and replaced by several processes.

Every change is a new file put in the place of the old one under a lock, so that a process killed
at any point leaves what was before the change or what is after it. Nothing is synced to the
disk: what a power failure could lose has not survived the boot that follows either.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.gpu.driver import Place
from migrator.gpu.processes import Process

_VERSION = 1


@dataclass(frozen=True)
class Made:
    """An instance on a virtual board."""

    place: Place
    number: int
    uuid: str | None
    """None while its compute instance is missing."""
    users: tuple[Process, ...] = ()
    """Processes that registered; some may have ended since."""
    limited: bool = False
    """Whether an MPS share has a limit on its memory."""


@dataclass(frozen=True)
class State:
    """Everything on one virtual board."""

    board: str
    boot_id: str
    instances: tuple[Made, ...] = ()

    def with_instance(self, made: Made) -> State:
        """That instance in the place of the one with its number, or added."""
        others = [each for each in self.instances if each.number != made.number]
        return replace(self, instances=tuple(sorted([*others, made], key=lambda each: each.place)))

    def without(self, number: int) -> State:
        """Everything else."""
        kept = tuple(each for each in self.instances if each.number != number)
        return replace(self, instances=kept)


class StateFile:
    """A virtual board's file and its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> State | None:
        """What is there now; None where nothing was ever written."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.path, error) from error
        try:
            return _state(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self.path}: is damaged and cannot be read; remove it to begin with an empty GPU"
            ) from error

    def locked(self) -> AbstractContextManager[None]:
        """Alone with the file."""
        return alone(self.path.with_suffix(".lock"))

    def replace(self, state: State) -> None:
        """Put `state` there; only while locked."""
        unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        try:
            unfinished.write_text(json.dumps(_json(state)), encoding="utf-8")
            unfinished.replace(self.path)
        except OSError as error:
            raise _unusable(self.path, error) from error


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Whoever has that file's lock; whoever dies inside lets go. Not for use inside itself."""
    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(lock, error) from error
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _unusable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path}: cannot be used ({error.strerror}); name another state folder in MIGRATOR_STATE"
    )


def _json(state: State) -> dict[str, object]:
    return {"version": _VERSION, **asdict(state)}


def _state(read: dict[str, Any]) -> State:
    if read["version"] != _VERSION:
        raise ValueError(read["version"])
    return State(
        board=str(read["board"]),
        boot_id=str(read["boot_id"]),
        instances=tuple(_made(each) for each in read["instances"]),
    )


def _made(read: dict[str, Any]) -> Made:
    return Made(
        place=Place(int(read["place"]["start"]), str(read["place"]["profile"])),
        number=int(read["number"]),
        uuid=None if read["uuid"] is None else str(read["uuid"]),
        users=tuple(Process(**each) for each in read["users"]),
        limited=bool(read.get("limited", False)),
    )
