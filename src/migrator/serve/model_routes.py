"""Health and metadata, as the Open Inference Protocol has them."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import migrator
from migrator.serve.backend import Backend
from migrator.serve.protocol import IndexEntry, Readiness, ServerMetadata
from migrator.serve.refusals import DrainedError, NoWorkerError


def json_response(value: Any) -> Response:
    """Anything msgspec can write."""
    return Response(msgspec.json.encode(value), media_type="application/json")


class ModelRoutes:
    """Says what is here and whether it is ready."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def server(self, _: Request) -> Response:
        """Who answers here."""
        version = migrator.__version__
        return json_response(
            ServerMetadata(
                name="migrator",
                version=version,
                extensions=["binary_tensor_data"],
                window=self._backend.window(),
            )
        )

    async def live(self, _: Request) -> Response:
        """The server runs."""
        return json_response(Readiness(ready=True))

    async def ready(self, _: Request) -> Response:
        """Every model has an instance that serves it; drained ones need none."""
        router = self._backend.router
        if not all(router.ready(each) or router.refuses(each) for each in self._backend.models):
            raise NoWorkerError("not every model has an instance ready; try again in some seconds")
        return json_response(Readiness(ready=True))

    async def metadata(self, request: Request) -> Response:
        """What a model takes and gives."""
        offered = self._backend.model(request)
        return json_response(offered.metadata(self._backend.version(offered.name)))

    async def model_ready(self, request: Request) -> Response:
        """The model has an instance that serves it."""
        name, router = self._backend.model(request).name, self._backend.router
        if router.refuses(name):
            raise DrainedError(f"{name} is drained; try again later")
        if not router.ready(name):
            raise NoWorkerError(f"{name} has no instance ready; try again in some seconds")
        return json_response(Readiness(ready=True, name=name))

    async def index(self, request: Request) -> Response:
        """The models that whoever asks may use."""
        holder = self._backend.holder(request)
        return json_response(
            [self._entry(name) for name in self._backend.models if holder.may_use(name)]
        )

    def _entry(self, name: str) -> IndexEntry:
        version = self._backend.version(name)
        router = self._backend.router
        ready = router.ready(name) and not router.refuses(name)
        why = "it is drained" if router.refuses(name) else "no instance is ready"
        return IndexEntry(
            name=name,
            version="" if version is None else str(version),
            state="READY" if ready else "UNAVAILABLE",
            reason="" if ready else why,
        )
