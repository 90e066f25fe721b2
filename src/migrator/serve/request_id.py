"""The id that follows a request from its client through router and worker into every log line.

It is the `x-request-id` that came with the request, else the `id` of its message, else made here;
the response names it in the same header.
"""

from __future__ import annotations

import re
from itertools import count
from uuid import uuid4

from starlette.requests import Request

from migrator.serve.limits import header_of

REQUEST_ID_HEADER = "x-request-id"
_KEY = "migrator.request_id"
_USABLE = re.compile(r"[\x21-\x7e]{1,128}")
"""What may stand in a header and in a log as it is."""

_prefix, _numbers = uuid4().hex[:12], count()


def request_id(request: Request, given: str | None = None) -> str:
    """The id of a request, the same whenever it is asked for; `given`: the one in its message."""
    known: str | None = request.scope.get(_KEY)
    if known is None:
        known = _usable(header_of(request, REQUEST_ID_HEADER)) or _usable(given) or made_id()
        request.scope[_KEY] = known
    return known


def made_id() -> str:
    """One that nobody else has."""
    return f"{_prefix}-{next(_numbers)}"


def _usable(given: str | None) -> str | None:
    return given if given and _USABLE.fullmatch(given) else None
