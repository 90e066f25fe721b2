"""One log line for every request that was refused, failed or late; none for those that went well.

Nothing of a request's body and no token gets here. A flood is told in a few lines a second, and
counted in full.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from starlette.requests import Request

from migrator.serve.logs import Sparing, and_more
from migrator.serve.request_id import request_id

LONGEST = 300
"""Characters of a reason."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class AccessLog:
    """What clients did not get, and why."""

    refused: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Answers by tenant and HTTP status; tenant "": of none, or of one that is not there."""
    _sparing: Sparing = field(default_factory=Sparing)

    def refuse(self, request: Request, tenant: str, status: int, reason: str) -> None:
        """An answer that is a refusal."""
        self.refused[tenant, status] += 1
        left_out = self._sparing.admit((tenant, status))
        if left_out is None:
            return
        asked = request_id(request)
        level = logging.ERROR if status == 500 else logging.INFO
        _log.log(
            level,
            "request %s%s refused with %d: %s%s",
            asked,
            f" of {tenant}" if tenant else "",
            status,
            reason[:LONGEST],
            and_more(left_out),
            extra={
                "request_id": asked,
                "tenant": tenant,
                "status": status,
                "path": request.url.path[:200],
                "left_out": left_out,
            },
        )

    def late(self, request: Request, tenant: str, waited_s: float, served_s: float) -> None:
        """An answer after its deadline."""
        left_out = self._sparing.admit((tenant, "late"))
        if left_out is None:
            return
        asked = request_id(request)
        _log.info(
            "request %s of %s answered late: it waited %.0f ms and took %.0f ms%s",
            asked,
            tenant,
            1e3 * waited_s,
            1e3 * served_s,
            and_more(left_out),
            extra={
                "request_id": asked,
                "tenant": tenant,
                "status": 200,
                "waited_s": round(waited_s, 4),
                "served_s": round(served_s, 4),
                "left_out": left_out,
            },
        )
