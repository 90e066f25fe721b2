"""`migrator load` against a real server process: what is sent, and what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.live_scenarios import live_scenario
from support.loads import balanced, labels_due, loaded
from support.oip_server import Running, oip_server

from migrator.learn.benchmarks.synthetic import Synthetic
from migrator.load.requests import times_s
from migrator.simulate.tenant import RunningTenant


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with oip_server() as found:
        yield found


@pytest.fixture
def server(running: Running) -> Running:
    running.tell(label=1, version=7)
    return running


@pytest.fixture(scope="module", autouse=True)
def _samples_made_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Synthetic, "load", cache(Synthetic.load))
        yield


def test_every_request_is_counted_once_and_judged_by_its_label(
    server: Running, tmp_path: Path
) -> None:
    live = live_scenario(tmp_path, 20, 30)
    outcome = loaded(live, server.url)
    due = labels_due(live)
    assert outcome.ended is None
    assert [outcome.tenants[name].sent for name in "ab"] == [50, 100]
    assert [outcome.tenants[name].goodput for name in "ab"] == [each[1] for each in due]
    assert outcome.whole.goodput + outcome.whole.wrong == 150
    assert [(each.window, each.whole.sent) for each in outcome.windows] == [(0, 60), (1, 90)]
    assert balanced(outcome)
    assert outcome.whole.versions == {"7": 150}
    assert outcome.seconds["b"].sent == (40, 60)
    assert sum(outcome.seconds["a"].goodput) == outcome.tenants["a"].goodput
    told: dict[str, int] = server.stats()["labels"]
    assert outcome.whole.labels_stored == len(told) == 150  # no id is another's
    for name, asked in zip("ab", due, strict=True):
        assert Counter(label for key, label in told.items() if key.startswith(f"{name}-")) == asked


def test_only_the_tenants_asked_for_and_no_labels_unless_wanted(
    server: Running, tmp_path: Path
) -> None:
    outcome = loaded(live_scenario(tmp_path, 10), server.url, tenants=("b",), labels=0.0)
    assert list(outcome.tenants) == ["b"]
    assert (outcome.whole.sent, outcome.whole.labels_stored) == (20, 0)
    assert not server.stats()["labels"]


def test_faster_than_the_trace(server: Running, tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 10, 20, 30, 40)
    outcome = loaded(live, server.url, windows=1, speed=3.0)
    assert [each.whole.sent for each in outcome.windows] == [180]


def test_every_answer_has_its_place_in_the_books(running: Running, tmp_path: Path) -> None:
    running.tell(statuses=[200, 429, 503, 504, 500, 400])
    outcome = loaded(live_scenario(tmp_path, 40), running.url)
    whole = outcome.whole
    assert whole.sent == 120
    assert whole.in_time == whole.dropped == 20
    assert whole.refused == {"queue full": 20, "no instance ready": 20}
    assert whole.failed == {"500: told to say 500": 20, "400: told to say 400": 20}
    assert whole.labels_stored == 20
    assert balanced(outcome)


def test_a_slow_server_does_not_slow_the_sending(running: Running, tmp_path: Path) -> None:
    """Open loop: nearly all of a second's requests are on their way before the first answer."""
    live = live_scenario(tmp_path, 50, slo_ms=300)
    running.tell(delay_s=2.5)
    outcome = loaded(live, running.url, labels=0.0)
    assert running.stats()["most"] > 75
    assert outcome.whole.late == outcome.whole.sent == 150
    assert outcome.whole.latencies is not None
    assert outcome.whole.latencies.p50_s > 2.5
    assert balanced(outcome)


def test_the_requests_are_those_of_the_simulator(tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 7, 0, 300, 41, window_s=2)
    scenario = live.scenario
    for index, tenant in enumerate(scenario.tenants):
        running = RunningTenant(tenant, scenario.slot_s, scenario.seed, index)
        drawn = [running._requests(begin, begin + 2.0)[0] for begin in (0.0, 2.0)]
        assert np.array_equal(times_s(scenario, index, 2, 1.0), np.concatenate(drawn))
