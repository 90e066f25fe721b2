"""`migrator load` against a real server process: what is sent, what is counted, what fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.live_scenarios import live_scenario
from support.loads import balanced, labels_due, loaded
from support.oip_server import Running, oip_server

from migrator.core.errors import InputError
from migrator.core.outcome import LoadOutcome
from migrator.core.scenario import LabelsAt
from migrator.learn.benchmarks.synthetic import Synthetic
from migrator.load.requests import times_s
from migrator.load.run import LoadProgress, LoadSettings, load, request_samples_of
from migrator.simulation.tenant import RunningTenant


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with oip_server() as server:
        yield server


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
    assert [outcome.tenants[name].goodput for name in "ab"] == [request[1] for request in due]
    assert outcome.whole.goodput + outcome.whole.wrong == 150
    assert [(window.window, window.whole.sent) for window in outcome.windows] == [(0, 60), (1, 90)]
    assert balanced(outcome)
    assert outcome.whole.versions == {"7": 150}
    assert outcome.seconds["b"].sent == (40, 60)
    assert sum(outcome.seconds["a"].goodput) == outcome.tenants["a"].goodput
    labels: dict[str, int] = server.stats()["labels"]
    assert outcome.whole.labels_stored == len(labels) == 150  # no id is another's
    for name, asked in zip("ab", due, strict=True):
        assert (
            Counter(label for key, label in labels.items() if key.startswith(f"{name}-")) == asked
        )


def test_only_the_tenants_asked_for_and_no_labels_unless_wanted(
    server: Running, tmp_path: Path
) -> None:
    outcome = loaded(live_scenario(tmp_path, 10), server.url, tenants=("b",), labels=0.0)
    assert list(outcome.tenants) == ["b"]
    assert (outcome.whole.sent, outcome.whole.labels_stored) == (20, 0)
    assert not server.stats()["labels"]


def test_every_status_is_counted(running: Running, tmp_path: Path) -> None:
    running.tell(statuses=[200, 429, 503, 504, 500, 400])
    outcome = loaded(live_scenario(tmp_path, 40), running.url)
    whole = outcome.whole
    assert whole.sent == 120
    assert whole.in_time == whole.dropped == 20
    assert whole.refused == {"queue full": 20, "no instance ready": 20}
    assert whole.failed == {"500: asked for 500": 20, "400: asked for 400": 20}
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
        assert np.array_equal(times_s(scenario, index, 2), np.concatenate(drawn))


@pytest.mark.parametrize("behaviour", [{"closes": True}, {"not_ready": 3}])
def test_servers_that_do_it_otherwise(
    behaviour: dict[str, Any], running: Running, tmp_path: Path
) -> None:
    live = live_scenario(tmp_path, 20)
    running.tell(label=1, **behaviour)
    outcome = loaded(live, running.url)
    assert outcome.whole.goodput == sum(due_s[1] for due_s in labels_due(live))
    assert outcome.whole.in_time == 60


def test_an_answer_without_a_label_is_a_failure(running: Running, tmp_path: Path) -> None:
    running.tell(mute=True)
    outcome = loaded(live_scenario(tmp_path, 10), running.url)
    assert outcome.whole.failed == {"an answer without a label": 30}


def test_a_server_that_stops_midway_leaves_what_was_measured(tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 30, 30, 30, 30)
    with oip_server(label=1, dies_after=100) as dying:
        outcome = loaded(live, dying.url, patience_s=0.5)
    assert outcome.ended == "the server answered nothing for 0.5 s"
    assert 0 < outcome.whole.in_time <= 100
    assert "connection refused" in outcome.whole.failed
    assert balanced(outcome)


def test_stopped_by_its_user_it_reports_what_was_measured(server: Running, tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 30, 30, 30, 30)
    seen: list[LoadProgress] = []

    async def stopped() -> LoadOutcome:
        stop = asyncio.Event()

        def watch(now: LoadProgress) -> None:
            seen.append(now)
            if now.sent > 50:
                stop.set()

        return await load(live, LoadSettings(server.url, windows=4), watch, stop)

    outcome = asyncio.run(stopped())
    assert outcome.ended == "interrupted"
    assert 50 < outcome.whole.sent < 360
    assert seen[0].sent == 0
    assert seen[-1].sent <= outcome.whole.sent
    assert balanced(outcome)


def test_it_begins_with_the_servers_next_window(running: Running, tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 20, slo_ms=60_000)
    running.tell(label=1, window={"number": 2, "begin_s_ago": 0.1, "window_s": 1.0})
    outcome = loaded(live, running.url, timeout_s=60)
    (window,) = outcome.windows
    assert window.window >= 3
    due = labels_due(live, first=window.window)
    assert outcome.whole.goodput == sum(request[1] for request in due)


def test_or_at_once_in_the_middle_of_it(running: Running, tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 40, 0, 0, 0, 0, 40, window_s=6)
    running.tell(label=1, window={"number": 2, "begin_s_ago": 3.5, "window_s": 6.0})
    outcome = loaded(live, running.url, now=True)
    assert [window.window for window in outcome.windows] == [2]
    assert outcome.seconds["a"].sent == (0, 0, 0, 0, 0, 40)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ({"token": "another"}, "--token: the server refuses the token of a"),
        ({"unknown": ["b"]}, "--tenant: the server at http"),
        ({"shape": [128]}, "name a benchmark of the model's kind"),
        (
            {"window": {"number": 0, "begin_s_ago": 0.0, "window_s": 200.0}},
            "the server's windows take 200 s and those of small 1 s",
        ),
    ],
)
def test_what_does_not_fit_is_reported_before_anything_is_sent(
    behaviour: dict[str, Any], said: str, running: Running, tmp_path: Path
) -> None:
    running.tell(**behaviour)
    with pytest.raises(InputError) as error:
        loaded(live_scenario(tmp_path, 10), running.url, tokens={"a": "mine", "b": "mine"})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_no_server_and_an_unknown_tenant(tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 5)
    with pytest.raises(InputError, match=r"no answer from http://127\.0\.0\.1:9 .*migrator serve"):
        loaded(live, "http://127.0.0.1:9")
    with pytest.raises(InputError, match="--tenant: small has no 'c'; use a, b"):
        loaded(live, "http://127.0.0.1:9", tenants=("c",))


def test_samples_of_a_window_are_uploaded_before_it(server: Running, tmp_path: Path) -> None:
    server.tell(window={"number": 0, "begin_s_ago": 0.0, "window_s": 2.0, "begun": False})
    live = live_scenario(tmp_path, 20, 20, 20, 20, window_s=2)
    outcome = loaded(live, server.url, labels_at=LabelsAt.START)
    stats = server.stats()
    assert not stats["labels"], "answers are not labelled"
    assert outcome.labels_at == "start"
    asked = request_samples_of(live.tenants[0], held_out=True)
    for window, (first, last) in enumerate(((0, 0), (1, 119))):
        own = [stat for stat in stats["uploads"] if f"a-{window}" in _window_of(stat["id"])]
        rows = asked.training_rows(window, window - 1 if window else None)
        assert len(own) == len(rows) == outcome.windows[window].tenants["a"].labels_stored
        assert all(first <= row["before"] <= last for row in own)


def _window_of(upload: str) -> str:
    name, _, _, window, _ = upload.split("-")
    return f"{name}-{window}"


def test_a_server_that_takes_no_samples_is_named(server: Running, tmp_path: Path) -> None:
    server.tell(no_samples=True)
    with pytest.raises(InputError, match=r"takes no samples of a .* use --labels-at feedback"):
        loaded(live_scenario(tmp_path), server.url, labels_at=LabelsAt.START)
