"""The feed: one reading for all pages, none without a page, slow pages are disconnected."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from migrator.dashboard import feed as feed_module
from migrator.dashboard.feed import Feed
from migrator.dashboard.updates import Marker, Update, read_news
from migrator.records.rows import SecondRecord
from migrator.records.store import Records

EVERY_S = 0.02
Frames = AsyncGenerator[bytes, None]


@pytest.fixture
def records(tmp_path: Path) -> Records:
    path = tmp_path / "records.db"
    return Records(path, scenario="s", board="A100-40GB", driver="d", policy="p", seed=0)


def put(records: Records, second: int) -> None:
    records.put(SecondRecord("photos", second, 5, 4))
    records.flush()


def parsed(frame: bytes) -> dict[str, Any]:
    head, data, _ = frame.decode().split("\n", 2)
    parsed_json: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert head == f"id: {parsed_json['marker']}"
    return parsed_json


async def begun(frames: Frames) -> bytes:
    """The first update, after the line that says when to come back."""
    assert (await anext(frames)).startswith(b"retry: ")
    return await anext(frames)


def test_all_pages_get_the_same_bytes_from_one_reading(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[Marker] = []

    def counted(path: Path, run: int, after: Marker, until: Marker | None = None) -> Update:
        readings.append(after)
        return read_news(path, run, after, until)

    monkeypatch.setattr(feed_module, "read_news", counted)

    async def followed() -> None:
        feed = Feed(records.path, records.run, EVERY_S)
        await asyncio.sleep(3 * EVERY_S)
        assert not readings, "no page is open"
        put(records, 0)
        many = [feed.follow(Marker()) for _ in range(5)]
        for follower in many:
            assert parsed(await begun(follower))["seconds"]["photos"][0] == [0]
        assert feed.followers == 5
        put(records, 1)
        before = len(readings)
        frames = [await anext(follower) for follower in many]
        assert len(set(map(id, frames))) == 1
        assert parsed(frames[0])["seconds"]["photos"][0] == [1]
        assert len(readings) <= before + 2
        for follower in many:
            await follower.aclose()
        assert feed.followers == 0
        quiet = len(readings)
        put(records, 2)
        await asyncio.sleep(3 * EVERY_S)
        assert len(readings) <= quiet + 1, "no page is open any more"

    asyncio.run(followed())


def test_a_page_that_reconnects_gets_what_it_missed(records: Records) -> None:
    async def followed() -> None:
        feed = Feed(records.path, records.run, EVERY_S)
        put(records, 0)
        first = feed.follow(Marker())
        marker = Marker.parse(parsed(await begun(first))["marker"])
        other = feed.follow(marker)
        await begun(other)
        await first.aclose()
        put(records, 1)
        put(records, 2)
        assert parsed(await anext(other))["seconds"]["photos"][0][-1] in (1, 2)
        back = feed.follow(marker)
        assert parsed(await begun(back))["seconds"]["photos"][0] == [1, 2]
        for follower in (other, back):
            await follower.aclose()

    asyncio.run(followed())


def test_a_slow_page_is_disconnected_and_the_others_are_not(records: Records) -> None:
    async def followed() -> None:
        feed = Feed(records.path, records.run, EVERY_S)
        put(records, 0)
        slow, quick = feed.follow(Marker()), feed.follow(Marker())
        await begun(slow)
        await begun(quick)
        last = 0
        while feed.followers == 2:
            last += 1
            put(records, last)
            await anext(quick)
        assert [frame async for frame in slow] == []
        put(records, last + 1)
        assert parsed(await anext(quick))["seconds"]["photos"][0] == [last + 1]
        await quick.aclose()

    asyncio.run(followed())


def test_closing_disconnects_all_pages(records: Records) -> None:
    async def followed() -> None:
        feed = Feed(records.path, records.run, EVERY_S)
        frames = feed.follow(Marker())
        await begun(frames)
        feed.close()
        assert [frame async for frame in frames] == []

    asyncio.run(followed())


def test_records_that_cannot_be_read_any_more_end_the_stream_and_nothing_else(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    async def followed() -> None:
        feed = Feed(records.path, records.run, EVERY_S)
        records.close()
        records.path.write_bytes(b"no records any more")
        frames_sent = [frame async for frame in feed.follow(Marker())]
        assert len(frames_sent) == 1
        assert feed.followers == 0

    asyncio.run(followed())
    assert "is damaged" in caplog.text
