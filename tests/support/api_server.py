"""A real server process with stand-in workers: python -m support.api_server SETTINGS

SETTINGS is JSON. The first line it prints is its address; it ends when its input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import FileResponse
from starlette.routing import Route

from migrator.core.action import Acted, ActionKind, Outcome
from migrator.core.errors import HttpError
from migrator.io.event_loop import event_loop
from migrator.io.tls import ServerCertificate, TlsFiles
from migrator.serving.http.access import Tokens, digest
from migrator.serving.http.app import application
from migrator.serving.http.operations import ApiState, Backend, Feedback
from migrator.serving.http.protocol import WindowNow
from migrator.serving.http.requests import ClientLimits
from migrator.serving.http.server import ApiServer, affordable, new_grpc_server
from migrator.serving.logs import configure
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router
from migrator.serving.workers.messages import ModelInterface
from support import PYTHONPATH
from support.stand_in_worker import StandInWorker

SIDE, CLASSES, LENGTH, VOCABULARY = 4, 3, 6, 50
FILE_BYTES = 12 * 2**20
"""Of GET /file: more than socket buffers hold."""


encoded = [0]
"""Texts that `lengths` got so far."""


def lengths(texts: list[str]) -> NDArray[np.int32]:
    """Stands for a tokenizer: every token is the length of its text. If the first text begins with
    the path of a pipe, it waits until something is written there."""
    encoded[0] += len(texts)
    if texts[0].startswith("/"):
        Path(texts[0].split()[0]).read_bytes()
        texts = ["", *texts[1:]]
    return np.array([[len(text)] * LENGTH for text in texts], np.int32)


class _TextModel(ModelInterface):
    encode = staticmethod(lengths)


def api_state(settings: Mapping[str, Any], router: Router) -> ApiState:
    """Two tenants, images and texts; labels are shown in the status."""
    stored: list[dict[str, Any]] = []

    async def feedback(label: Feedback) -> bool:
        same = [row for row in stored if row["id"] == label.request_id]
        if any(row["label"] != label.label for row in same):
            raise HttpError(409, "another label is stored")
        new = not same
        row = label.inputs.tolist()
        stored.append({"tenant": label.tenant, "id": label.request_id, "label": label.label})
        stored[-1] |= {"window": label.window, "predicted": label.predicted, "inputs": row}
        return new

    acted: list[tuple[str, str | None, str]] = []

    async def act(kind: ActionKind, tenant: str | None, who: str) -> Acted:
        acted.append((kind, tenant, who))
        outcomes = {"texts": Outcome.REFUSED, "images": Outcome.FAILED}
        rolled = kind is ActionKind.ROLL_BACK
        return Acted(outcomes[tenant or ""] if rolled else Outcome.DONE, f"{kind} in words")

    backend = Backend(
        router=router,
        models={
            "images": ModelInterface(
                "images", "UINT8", (3, SIDE, SIDE), CLASSES, given_names=("cat", "dog")
            ),
            "texts": _TextModel("texts", "INT32", (LENGTH,), CLASSES, VOCABULARY),
        },
        feedback=feedback,
        version=lambda _: 7,
        # with `windows_of` a window ends whenever so many more labels are stored
        window=lambda: WindowNow(5 + len(stored) // settings.get("windows_of", 10**9), 1.0, 200.0),
        status=lambda: {"stored": stored, "acted": acted, **_counted(router)},
        act=act,
    )
    tokens = Tokens(
        {name: digest(token) for name, token in settings.get("tokens", {}).items()},
        digest(settings["admin"]) if "admin" in settings else None,
    )
    limits = affordable(
        ClientLimits(**settings.get("limits", {})), 2 if settings.get("grpc") else 1
    )
    return ApiState(backend, tokens, limits)


def _counted(router: Router) -> dict[str, Any]:
    total = router.counts["images"].total
    tenant = {"version": 7, "back_to": [6]}
    return {
        "pid": os.getpid(),
        "files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "scenario": "stand-in",
        "tenants": {"images": tenant, "texts": tenant},
        "waiting": router.waiting("images"),
        "total": asdict(total),
        "open": total.open,
        "encoded": encoded[0],
    }


async def _main(settings: Mapping[str, Any]) -> None:
    if "files" in settings:  # that it may open
        resource.setrlimit(resource.RLIMIT_NOFILE, (settings["files"], settings["files"]))
    slo_s, queue = settings.get("slo_s", 30.0), settings.get("queue", 100)
    router = Router({name: QueueSettings(name, slo_s, 4, queue) for name in ("images", "texts")})
    latency_s = settings.get("latency_s", 0.0)
    for tenant in settings.get("ready", ("images", "texts")):
        worker = StandInWorker(tenant, lambda _: latency_s, classes=CLASSES, version=7)
        worker.unseen = settings.get("unseen", False)
        router.attach(tenant, worker, worker.latency_s)
    state = api_state(settings, router)
    with tempfile.TemporaryFile() as file:
        file.truncate(FILE_BYTES)
        pages = [Route("/file", lambda _: FileResponse(f"/proc/self/fd/{file.fileno()}"))]
        app = application(state, pages)
        certificate = None
        if "tls" in settings:  # the paths of a certificate and its key
            chain, key = settings["tls"]
            certificate = ServerCertificate(TlsFiles(Path(chain), Path(key)))
        server = ApiServer(
            app, tokens=state.tokens, port=0, limits=state.limits, certificate=certificate
        )
        await server.start()
        print(server.url, flush=True)
        beside = None
        if settings.get("grpc"):  # its address is the second line
            beside = new_grpc_server(app, "127.0.0.1", 0, state.limits, state.tokens, certificate)
            await beside.start()
            print(beside.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await server.stop()
        if beside is not None:
            await beside.stop()


def image_body(value: int = 0, **changes: Any) -> dict[str, Any]:
    """A request with one image of that value; `changes` are of its tensor."""
    tensor = {"name": "input", "datatype": "UINT8", "shape": [1, 3, SIDE, SIDE]}
    return {"inputs": [tensor | {"data": [value] * 3 * SIDE**2} | changes]}


def triton_image(triton: Any, rows: int = 1, value: int = 0, **how: bool) -> Any:
    """Images of that value as Triton's client for HTTP or gRPC sends them."""
    sent = triton.InferInput("input", [rows, 3, SIDE, SIDE], "UINT8")
    sent.set_data_from_numpy(np.full((rows, 3, SIDE, SIDE), value, np.uint8), **how)
    return sent


def connected(url: str) -> closing[socket.socket]:
    """A connection to the server at that address."""
    host, _, port = url.removeprefix("http://").partition(":")
    return closing(socket.create_connection((host, int(port)), timeout=60))


def received(connection: socket.socket) -> bytes:
    """Everything until the server ends the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def memory_mib(pid: int, field: str = "VmRSS:") -> float:
    """Resident memory of a process now, or at its peak (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


@contextmanager
def running_server(**settings: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server and its address; it must not have written a traceback by its end."""
    command = [sys.executable, "-m", "support.api_server", json.dumps(settings)]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, process.communicate()[1]
        try:
            yield url, process
        finally:
            _, errors = process.communicate(timeout=20)
    assert "Traceback" not in errors, errors
    assert process.returncode == 0, errors


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    with (
        Path(settings.get("log", os.devnull)).open("w", encoding="utf-8") as log,
        asyncio.Runner(loop_factory=event_loop) as runner,  # as the daemon has it
    ):
        if "log" in settings:
            configure(stream=log)
        runner.run(_main(settings))
