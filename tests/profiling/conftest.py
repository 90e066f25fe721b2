"""A board as small as can be, and the environment of workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import PYTHONPATH

from migrator.core.catalogue import Board, MigProfile


@pytest.fixture(scope="session")
def board() -> Board:
    """One size, of which there can be two: every further one is a process to start."""
    return Board("toy", 2, 2, (MigProfile("1g.1gb", 1, 1, 2, (0, 1), 1.0, 10, None, None),))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    del state  # in a state folder of its own
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
