"""`migrator load` and servers that are slow to start, stop, refuse, or count other windows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.live_scenarios import live_scenario
from support.loads import balanced, labels_due, loaded
from support.oip_server import Running, oip_server

from migrator.core.errors import InputError
from migrator.core.load_outcome import LoadOutcome
from migrator.learn.benchmarks.synthetic import Synthetic
from migrator.load.run import LoadSettings, Standing, load


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


@pytest.mark.parametrize("told", [{"binary": True}, {"closes": True}, {"not_ready": 3}])
def test_servers_that_do_it_otherwise(
    told: dict[str, Any], running: Running, tmp_path: Path
) -> None:
    live = live_scenario(tmp_path, 20)
    running.tell(label=1, **told)
    outcome = loaded(live, running.url)
    assert outcome.whole.goodput == sum(each[1] for each in labels_due(live))
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
    assert "nobody listens" in outcome.whole.failed
    assert balanced(outcome)


def test_stopped_by_its_user_it_tells_what_was_measured(server: Running, tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 30, 30, 30, 30)
    seen: list[Standing] = []

    async def stopped() -> LoadOutcome:
        stop = asyncio.Event()

        def watch(now: Standing) -> None:
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


@pytest.mark.parametrize("place", ["window", "status"])
def test_it_begins_with_the_servers_next_window(
    place: str, running: Running, tmp_path: Path
) -> None:
    live = live_scenario(tmp_path, 20)
    running.tell(label=1, **{place: {"number": 2, "begin_s_ago": 0.1, "window_s": 1.0}})
    outcome = loaded(live, running.url)
    (window,) = outcome.windows
    assert window.window >= 3
    due = labels_due(live, first=window.window)
    assert outcome.whole.goodput == sum(each[1] for each in due)


def test_or_at_once_in_the_middle_of_it(running: Running, tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 40, 0, 0, 0, 0, 40, window_s=6)
    running.tell(label=1, window={"number": 2, "begin_s_ago": 3.5, "window_s": 6.0})
    outcome = loaded(live, running.url, now=True)
    assert [each.window for each in outcome.windows] == [2]
    assert outcome.seconds["a"].sent == (0, 0, 0, 0, 0, 40)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"token": "another"}, "--token: the server refuses the token of a"),
        ({"unknown": ["b"]}, "--tenant: the server at http"),
        ({"shape": [3, 32, 32]}, "correct live.pixels"),
        (
            {"window": {"number": 0, "begin_s_ago": 0.0, "window_s": 200.0}},
            "the server's windows take 200 s and those of small 1 s",
        ),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_sent(
    told: dict[str, Any], said: str, running: Running, tmp_path: Path
) -> None:
    running.tell(**told)
    with pytest.raises(InputError) as error:
        loaded(live_scenario(tmp_path, 10), running.url, tokens={"a": "mine", "b": "mine"})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_with_its_token_a_tenant_is_served(running: Running, tmp_path: Path) -> None:
    running.tell(token="secret-of-them")
    tokens = dict.fromkeys("ab", "secret-of-them")
    assert loaded(live_scenario(tmp_path, 5), running.url, tokens=tokens).whole.in_time == 15


def test_nobody_there_and_nobody_meant(tmp_path: Path) -> None:
    live = live_scenario(tmp_path, 5)
    with pytest.raises(InputError, match=r"no answer from http://127\.0\.0\.1:9 .*migrator serve"):
        loaded(live, "http://127.0.0.1:9")
    with pytest.raises(InputError, match="--tenant: small has no 'c'; use a, b"):
        loaded(live, "http://127.0.0.1:9", tenants=("c",))
