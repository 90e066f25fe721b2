"""POST .../infer: read, routed, answered with the version that answered and the request's id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from migrator.serve.backend import Backend
from migrator.serve.leaving import leaving
from migrator.serve.limits import header_of
from migrator.serve.protocol import InferAnswer, InferRequest, decoder, parameters_of
from migrator.serve.reading import read_message
from migrator.serve.recent import Recent
from migrator.serve.refusals import MalformedError
from migrator.serve.request_id import made_id, request_id
from migrator.serve.tensors import Offered, finite, read_input, wanted_outputs, written

TIMEOUT_HEADER = "timeout-ms"
TIMEOUTS = {"timeout_ms": 1e-3, "deadline_ms": 1e-3, "timeout": 1e-6}
"""Request parameters to seconds; `timeout` is in microseconds, as other servers have it."""
LONGEST_S = 600.0

_READER = decoder(InferRequest)


@dataclass(frozen=True, eq=False, slots=True)
class _Asked:
    """A request as it waits for its answer."""

    id: str
    traced: str
    """The id in logs."""
    inputs: NDArray[Any]
    wanted: dict[str, bool]
    allowed_s: float | None


class InferRoute:
    """Answers inference requests."""

    def __init__(self, backend: Backend, recent: Mapping[str, Recent]) -> None:
        self._backend = backend
        self._recent = recent

    async def infer(self, request: Request) -> Response:
        """One request."""
        backend, offered = self._backend, self._backend.model(request)
        asked = await self._read(request, offered)
        router, name = backend.router, offered.name
        deadline_s = None if asked.allowed_s is None else router.clock() + asked.allowed_s
        with leaving(request):
            routed = await router.infer(name, asked.inputs, deadline_s, asked.traced)
        if routed.late:
            backend.access.late(request, name, routed.waited_s, routed.served_s)
        scores = finite(routed.scores)
        self._recent[name].keep(asked.id, asked.inputs, scores.argmax(axis=1))
        answer = InferAnswer(
            model_name=name,
            model_version=str(routed.version),
            id=asked.id,
            parameters={"late": routed.late},
            outputs=[],
        )
        return _response(*written(answer, scores, asked.wanted))

    async def _read(self, request: Request, offered: Offered) -> _Asked:
        """What is left of the body once it is read; nothing here refers to the body itself."""
        message, binary = await read_message(request, self._backend.limits, _READER)
        parameters = parameters_of(message)
        # labels find their requests by this id: one that a client's header repeats would not do
        own_id = message.id or made_id()
        return _Asked(
            id=own_id,
            traced=request_id(request, own_id),
            inputs=read_input(message.inputs[0], binary, offered),
            wanted=wanted_outputs(message.outputs, parameters.get("binary_data_output") is True),
            allowed_s=_allowed_s(request, parameters),
        )


def _response(body: bytes, json_length: int | None) -> Response:
    if json_length is None:
        return Response(body, media_type="application/json")
    headers = {"inference-header-content-length": str(json_length)}
    return Response(body, headers=headers, media_type="application/octet-stream")


def _allowed_s(request: Request, parameters: Mapping[str, Any]) -> float | None:
    """Seconds the client gives; None: as the tenant's objective has it."""
    header = header_of(request, TIMEOUT_HEADER)
    if header is not None:
        return _seconds(TIMEOUT_HEADER, _number(header), 1e-3)
    for key, unit_s in TIMEOUTS.items():
        if key in parameters:
            return _seconds(key, parameters[key], unit_s)
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _seconds(key: str, given: object, unit_s: float) -> float:
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else 0
    # compared before it is multiplied: an integer may be too large for a float
    if 0 < number <= LONGEST_S / unit_s:
        return number * unit_s
    raise MalformedError(f"{key}: no time between 0 and {LONGEST_S:g} s; send a number within")
