"""A tenant of a load: what its model takes, and its samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from migrator.load.requests import Questions
from migrator.load.server import ModelInput
from migrator.workload.live import LiveTenant


@dataclass(frozen=True, eq=False)
class Target:
    """A tenant with its model's input and its samples."""

    tenant: LiveTenant
    input: ModelInput
    questions: Questions
    run: str = field(default_factory=lambda: uuid4().hex[:8])
    """Part of every request id, which makes ids of different loads distinct."""
