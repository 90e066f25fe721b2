"""POST .../feedback: a true label, answered when it is on disk; the next window learns from it."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from migrator.serve.backend import Backend, Feedback
from migrator.serve.origin import require_own_sender
from migrator.serve.protocol import FeedbackAnswer, FeedbackRequest, decoder
from migrator.serve.reading import read_message
from migrator.serve.recent import Recent
from migrator.serve.refusals import MalformedError, NotFoundError
from migrator.serve.request_id import request_id
from migrator.serve.tensors import Offered, read_input

_READER = decoder(FeedbackRequest)


class FeedbackRoute:
    """Takes labels."""

    def __init__(self, backend: Backend, recent: Mapping[str, Recent]) -> None:
        self._backend = backend
        self._recent = recent

    async def feedback(self, request: Request) -> Response:
        """One label."""
        offered = self._backend.model(request)
        require_own_sender(request, self._backend.tokens)
        message, binary = await read_message(request, self._backend.limits, _READER)
        request_id(request, message.id)
        if message.label >= offered.classes:
            raise MalformedError(
                f"label: {message.label} is no class of {offered.name}; send 0 to "
                f"{offered.classes - 1}"
            )
        if message.inputs:
            given = self._sent_along(message, binary, offered)
        else:
            given = self._remembered(message, offered)
        await self._backend.feedback(given)
        body = msgspec.json.encode(FeedbackAnswer(id=given.request_id, stored=True))
        return Response(body, media_type="application/json")

    def _sent_along(
        self, message: FeedbackRequest, binary: memoryview, offered: Offered
    ) -> Feedback:
        inputs = read_input(message.inputs[0], binary, offered)
        if len(inputs) != 1:
            raise MalformedError(f"inputs: {len(inputs)} rows for one label; send one row")
        window, given_id = self._backend.window().number, message.id or uuid4().hex
        return Feedback(offered.name, window, inputs[0], message.label, None, given_id)

    def _remembered(self, message: FeedbackRequest, offered: Offered) -> Feedback:
        found = self._recent[offered.name].find(message.id)
        if found is None:
            raise NotFoundError(
                "id: not among the requests answered of late; send the inputs with the label"
            )
        if message.row >= len(found.inputs):
            raise MalformedError(f"row: the request has {len(found.inputs)}; send one below that")
        row = message.row
        return Feedback(
            offered.name,
            self._backend.window().number,
            found.inputs[row],
            message.label,
            int(found.predicted[row]),
            message.id if len(found.inputs) == 1 else f"{message.id}/{row}",
        )
