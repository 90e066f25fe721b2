"""A server of the Open Inference Protocol that does what a test tells it to: a real process.

    cd tests && python -m support.oip_server '{"label": 1, "delay_s": 0.1}'

It prints its port, answers every sample with the same label, and keeps what it was asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

HEADER = "inference-header-content-length"


class Oip:
    """Routes and what they remember; `wanted` is the behaviour that the test wants."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._begin(wanted)

    def _begin(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.began_s = time.monotonic()
        self.ids: list[str] = []
        self.labels: dict[str, int] = {}
        self.uploads: list[dict[str, Any]] = []
        self.now = self.most = self.asked_ready = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v2", self.server),
                Route("/stats", self.stats),
                Route("/behaviour", self.anew, methods=["POST"]),
                Route("/v2/models/{name}", self.metadata),
                Route("/v2/models/{name}/ready", self.ready),
                Route("/v2/models/{name}/infer", self.infer, methods=["POST"]),
                Route("/v2/models/{name}/feedback", self.feedback, methods=["POST"]),
                Route("/v2/models/{name}/samples", self.samples, methods=["POST"]),
            ]
        )

    async def server(self, _: Request) -> Response:
        now = self._window()
        return JSONResponse(
            {"name": "migrator", "extensions": []} | ({"window": now} if now else {})
        )

    def _window(self) -> dict[str, Any] | None:
        """The window that is now, if the test wants it reported there."""
        window = self.wanted.get("window")
        if window is None:
            return None
        ago_s = window["begin_s_ago"] + time.monotonic() - self.began_s
        number = window["number"] + int(ago_s // window["window_s"])
        return {**window, "number": number, "begin_s_ago": ago_s % window["window_s"]}

    async def stats(self, _: Request) -> Response:
        return JSONResponse(
            {"ids": self.ids, "labels": self.labels, "most": self.most, "uploads": self.uploads}
        )

    async def anew(self, request: Request) -> Response:
        self._begin(await request.json())
        return JSONResponse({})

    async def metadata(self, request: Request) -> Response:
        if (refusal := self._refused(request)) is not None:
            return refusal
        shape = self.wanted.get("shape", [3, 16, 16])
        tensor = {"name": "pixels", "datatype": "UINT8", "shape": [-1, *shape]}
        return JSONResponse({"name": request.path_params["name"], "inputs": [tensor]})

    async def ready(self, _: Request) -> Response:
        self.asked_ready += 1
        late = self.asked_ready <= self.wanted.get("not_ready", 0)
        return JSONResponse({"error": "no instance yet"} if late else {}, 503 if late else 200)

    async def infer(self, request: Request) -> Response:
        if (refusal := self._refused(request)) is not None:
            return refusal
        body = await request.body()
        head = json.loads(body[: int(request.headers[HEADER])])
        tensor = head["inputs"][0]
        raw = body[int(request.headers[HEADER]) :]
        assert len(raw) == tensor["parameters"]["binary_data_size"]
        assert np.frombuffer(raw, np.uint8).reshape(tensor["shape"]).ndim == 4
        self.ids.append(head["id"])
        number = len(self.ids)
        if number > self.wanted.get("dies_after", 10**9):
            os._exit(1)
        await self._take_time()
        return self._answered(number, head["id"])

    async def _take_time(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.wanted.get("delay_s", 0))
        self.now -= 1

    def _answered(self, number: int, request_id: str) -> Response:
        statuses = self.wanted.get("statuses", [200])
        status = statuses[number % len(statuses)]
        if status != 200:
            return JSONResponse({"error": f"asked for {status}"}, status)
        label = self.wanted.get("label", 0)
        output: dict[str, Any] = {"name": "label", "datatype": "INT64", "shape": [1]}
        answer: dict[str, Any] = {
            "id": request_id,
            "model_version": str(self.wanted.get("version", 1)),
        }
        headers = {"connection": "close"} if self.wanted.get("closes") else {}
        outputs = [] if self.wanted.get("mute") else [{**output, "data": [label]}]
        return JSONResponse({**answer, "outputs": outputs}, headers=headers)

    async def feedback(self, request: Request) -> Response:
        label = await request.json()
        self.labels[label["id"]] = label["label"]
        return JSONResponse({"id": label["id"], "stored": True})

    async def samples(self, request: Request) -> Response:
        if self.wanted.get("no_samples"):
            return JSONResponse({"error": "no such route"}, 404)
        body = await request.body()
        head = json.loads(body[: int(request.headers[HEADER])])
        shape = head["inputs"][0]["shape"]
        raw = np.frombuffer(body[int(request.headers[HEADER]) :], np.uint8).reshape(shape)
        assert len(raw) == len(head["labels"])
        # how many requests came before it tells when it came
        before = len(self.ids)
        self.uploads += [
            {"id": head["id"], "before": before, "label": label, "sum": int(row.sum(dtype=int))}
            for label, row in zip(head["labels"], raw, strict=True)
        ]
        return JSONResponse({"id": head["id"], "stored": len(raw), "repeated": 0})

    def _refused(self, request: Request) -> Response | None:
        token = self.wanted.get("token")
        if token is not None and request.headers.get("authorization") != f"Bearer {token}":
            return JSONResponse({"error": "token: missing or unknown"}, 401)
        if request.path_params["name"] in self.wanted.get("unknown", []):
            return JSONResponse({"error": "model: there is none"}, 404)
        return None


class Running:
    """A server process as a test sees it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.url = process, f"http://127.0.0.1:{port}"

    def tell(self, **wanted: Any) -> None:
        """Another test's wishes; what was remembered is forgotten."""
        urllib.request.urlopen(
            f"{self.url}/behaviour", json.dumps(wanted).encode(), timeout=10
        ).close()

    def stats(self) -> Any:
        with urllib.request.urlopen(f"{self.url}/stats", timeout=10) as answer:
            return json.load(answer)


@contextmanager
def oip_server(**wanted: Any) -> Iterator[Running]:
    """A server that listens, until the block ends."""
    command = [sys.executable, "-m", "support.oip_server", json.dumps(wanted)]
    here = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=here) as process:
        assert process.stdout is not None
        try:
            yield Running(process, int(process.stdout.readline()))
        finally:
            process.kill()


async def _serve(wanted: dict[str, Any]) -> None:
    server = uvicorn.Server(
        uvicorn.Config(Oip(wanted).app(), port=0, log_level="critical", lifespan="off")
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(_serve(json.loads(sys.argv[1])))
