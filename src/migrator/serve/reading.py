"""A request's message as it came over HTTP: JSON, and the binary tensor data that may follow."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from migrator.serve.limits import Limits, header_of, read_body
from migrator.serve.protocol import decoded
from migrator.serve.refusals import MalformedError

HEADER_LENGTH = "inference-header-content-length"
_MOST_DIGITS = 18


async def read_message(
    request: Request, limits: Limits, reader: msgspec.json.Decoder[Any]
) -> tuple[Any, memoryview]:
    """The message and the bytes behind it."""
    body = memoryview(await read_body(request, limits))
    length = _json_length(header_of(request, HEADER_LENGTH), len(body))
    return decoded(reader, body[:length]), body[length:]


def _json_length(given: str | None, size: int) -> int:
    if given is None:
        return size
    # int() raises ValueError beyond some thousand digits
    if not given.isdecimal() or len(given) > _MOST_DIGITS or int(given) > size:
        raise MalformedError(f"{HEADER_LENGTH}: no number within the body; send the bytes of JSON")
    return int(given)
