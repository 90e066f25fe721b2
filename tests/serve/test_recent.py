"""Bounded memories: answered requests for feedback, counts by second."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from migrator.serve import recent
from migrator.serve.counts import KEPT_S, Counted, Counts
from migrator.serve.recent import Recent

LABEL = np.zeros(1, np.int64)


def test_the_oldest_are_forgotten_when_the_bytes_are_full() -> None:
    kept = Recent(100)
    for name in "abc":
        kept.keep(name, np.zeros((1, 40), np.uint8), LABEL)
    assert len(kept) == 2
    assert kept.find("a") is None
    assert kept.find("c") is not None


def test_an_id_used_again_is_the_last_request_of_that_id() -> None:
    kept = Recent(100)
    for value in range(10):
        kept.keep("same", np.full((1, 40), value, np.uint8), LABEL)
    kept.keep("other", np.zeros((1, 40), np.uint8), LABEL)
    found = kept.find("same")
    assert found is not None
    assert found.inputs[0, 0] == 9


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    kept = Recent(10)
    kept.keep("a", np.zeros((1, 40), np.uint8), LABEL)
    assert len(kept) == 0


def test_there_are_never_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "KEPT", 3)
    kept = Recent(10**6)
    for number in range(9):
        kept.keep(str(number), np.zeros((1, 1), np.uint8), LABEL)
    assert len(kept) == 3


def test_old_seconds_are_forgotten_and_totals_are_not() -> None:
    counts = Counts()
    for second in range(2 * KEPT_S):
        came = counts.receive(second + 0.5, 2)
        counts.answer(came, 1, 0.05, late=False)
        counts.drop(came, 1)
    assert counts.total == Counted(received=4 * KEPT_S, in_time=2 * KEPT_S, dropped=2 * KEPT_S)
    assert counts.total.open == 0
    seconds = counts.seconds(0, 2 * KEPT_S)
    assert sum(each.received for each in seconds) == 2 * KEPT_S
    assert sum(counts.latencies) == 2 * KEPT_S


def test_the_api_needs_nothing_of_what_models_are_made_of() -> None:
    code = "import sys, migrator.serve.api, migrator.serve.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numba", "transformers", "pydantic"} & set(done.stdout.split())
