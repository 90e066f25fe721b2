"""An instance on the board and the task it holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The two tasks of a tenant."""

    INFERENCE = "inference"
    RETRAINING = "retraining"

    __hash__ = str.__hash__  # tasks are hashed all the time; that of an Enum is written in Python


@dataclass(frozen=True, order=True)
class Task:
    """A tenant's inference or retraining; written TENANT/inference, TENANT/retraining."""

    tenant: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.tenant}/{self.kind}"

    @staticmethod
    def parse(text: str) -> Task:
        """Parse a task; ValueError if the text is not TENANT/KIND."""
        tenant, slash, kind = text.rpartition("/")
        if not slash or not tenant:
            raise ValueError(f"{text!r} is not TENANT/inference or TENANT/retraining")
        return Task(tenant, Kind(kind))


@dataclass(frozen=True)
class Instance:
    """A MIG instance of `gpcs` GPCs whose first memory slice is `start`."""

    start: int
    gpcs: int
    task: Task | None = None
    """None: the instance exists and is unused."""

    def __str__(self) -> str:
        return f"{self.gpcs}g@{self.start}"
