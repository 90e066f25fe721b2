"""One id from the client's header through router and worker back into the answer and the log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from support import PYTHONPATH
from support.api_server import CLASSES, api_state, image_body
from support.served_models import RAISE
from support.serving import assignment, pictures, started
from support.stand_in_worker import POISON, StandInWorker

from migrator.serving.http.app import application
from migrator.serving.http.operations import AccessLog
from migrator.serving.logs import LineLimiter
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router
from migrator.serving.workers.messages import ModelFaultError

INFER = "/v2/models/images/infer"
ADMIN, PHOTOS = "admin-secret", "photos-secret"


def body(value: int = 0, **more: Any) -> dict[str, Any]:
    return image_body(value) | more


class Api(NamedTuple):
    """A client of the API in the same process, and what is behind it."""

    client: httpx.AsyncClient
    worker: StandInWorker
    access_log: AccessLog


@asynccontextmanager
async def api(
    *, slo_s: float = 5.0, settings: dict[str, Any] | None = None, most: int = 5
) -> AsyncIterator[Api]:
    router = Router({name: QueueSettings(name, slo_s, 4, 100) for name in ("images", "texts")})
    worker = StandInWorker("w1", classes=CLASSES)
    router.attach("images", worker, lambda _: 0.0)
    access_log = AccessLog(LineLimiter(most, each_s=600.0))
    state = replace(api_state(settings or {}, router), access_log=access_log)
    transport = httpx.ASGITransport(application(state))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield Api(client, worker, access_log)


def lines_of(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == f"migrator.serving.{name}"]


@pytest.mark.parametrize(
    ("header", "own", "expected"),
    [
        ("trace-7", "mine", "trace-7"),
        ("trace-7", None, "trace-7"),
        (None, "mine", "mine"),
        ("not usable: a space", "mine", "mine"),
        ("x" * 129, None, None),
        (None, "zwölf", None),
        (None, None, None),
    ],
)
async def test_an_answer_names_the_id_that_went_to_the_worker(
    header: str | None, own: str | None, expected: str | None
) -> None:
    async with api() as (client, worker, _):
        headers = {} if header is None else {"x-request-id": header}
        sent = body() | ({"id": own} if own else {})
        answer = await client.post(INFER, json=sent, headers=headers)
        assert answer.status_code == 200
        named = answer.headers["x-request-id"]
        assert worker.request_ids == [named]
        if expected is not None:
            assert named == expected
        # labels go by the message's own id: a header may come with several requests
        assert answer.json()["id"] == own if own else answer.json()["id"] != header


async def test_made_ids_differ_and_requests_of_a_batch_are_all_named() -> None:
    async with api() as (client, worker, _):
        worker.held.clear()
        first = asyncio.create_task(client.post(INFER, json=body()))
        await worker.begun.wait()
        others = [
            asyncio.create_task(client.post(INFER, json=body(), headers={"x-request-id": name}))
            for name in ("a", "b")
        ]
        while (await client.get("/admin/status")).json()["waiting"] < len(others):
            await asyncio.sleep(0)
        worker.held.set()
        answers = await asyncio.gather(first, *others)
        ids = [answer.headers["x-request-id"] for answer in answers]
        assert worker.request_ids == [ids[0], "a b"]
        assert len(set(ids)) == 3


async def test_what_is_refused_has_a_line_and_an_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "migrator")
    async with api() as (client, _, access):
        for path in ("/v2/models/missing/infer", "/v2/models/images/versions/4/infer"):
            answer = await client.post(path, json=body(), headers={"x-request-id": "t1"})
            assert answer.status_code == 404
            assert answer.headers["x-request-id"] == "t1"
        assert (await client.post(INFER, json=body(POISON, id="p"))).status_code == 500
    assert access.refused == {("", 404): 1, ("images", 404): 1, ("images", 500): 1}
    lines = lines_of(caplog, "http.access_log")
    logged = [(line.__dict__["tenant"], line.__dict__["status"], line.levelname) for line in lines]
    assert logged == [("", 404, "INFO"), ("images", 404, "INFO"), ("images", 500, "ERROR")]
    assert [line.__dict__["request_id"] for line in lines] == ["t1", "t1", "p"]
    (batch,) = lines_of(caplog, "router")
    assert batch.__dict__["request_ids"] == "p"


async def test_late_answers_have_a_line_and_those_in_time_have_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "migrator")
    async with api(slo_s=0.1) as (client, worker, _):
        assert (await client.post(INFER, json=body())).status_code == 200
        worker.latency_s = lambda _: 0.2
        late = await client.post(INFER, json=body(), headers={"x-request-id": "slow"})
        assert late.json()["parameters"]["late"] is True
    (line,) = lines_of(caplog, "http.access_log")
    assert "request slow of images answered late" in line.getMessage()


async def test_neither_tokens_nor_bodies_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"tokens": {"images": PHOTOS, "texts": "other"}, "admin": ADMIN}
    caplog.set_level(logging.DEBUG, "migrator")
    async with api(settings=settings, most=1000) as (client, _, access):
        for token in (PHOTOS, ADMIN, "guessed-secret"):
            headers = {"authorization": f"Bearer {token}"}
            for path in (INFER, "/v2/models/texts/infer", "/v2/models/images/feedback"):
                for sent in (b'{"inputs": "private words"', b"private words", b'{"private": 1}'):
                    await client.post(path, content=sent, headers=headers)
            await client.get("/metrics", headers=headers)
    assert access.refused.total() == len(caplog.records) > 20
    logged = json.dumps([{k: str(v) for k, v in vars(record).items()} for record in caplog.records])
    assert "secret" not in logged
    assert "private words" not in logged


async def test_a_workers_own_log_names_the_requests_it_failed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    async with started(tmp_path) as workers:
        worker = await workers.take(assignment())
        for _ in range(20):
            with pytest.raises(ModelFaultError):
                await worker.infer(pictures(RAISE), "trace-1 trace-2")
        await worker.infer(pictures(), "well")
    said = (tmp_path / "workers.log").read_text(encoding="utf-8")
    assert "could not answer trace-1 trace-2: ValueError: asked to raise" in said
    assert "served_models.py" in said  # where it happened
    assert said.count("asked to raise\n") <= 2 * 6  # five a second, each with its traceback
    assert "well" not in said
