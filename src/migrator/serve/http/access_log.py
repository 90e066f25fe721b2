"""One log line for every request that was refused, failed or late; none for the others.

No body and no token is logged. A flood is logged with a few lines per second, and counted in full.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from starlette.requests import Request

from migrator.serve.http.requests import request_id
from migrator.serve.logs import LineLimiter, omitted_lines

MAX_REASON = 300
"""Characters."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class AccessLog:
    """Counts and logs refusals and late answers."""

    refused: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By tenant and HTTP status; the tenant is "" where none or an unknown one was named."""
    _lines: LineLimiter = field(default_factory=LineLimiter)

    def refuse(self, request: Request, tenant: str, status: int, reason: str) -> None:
        """Record a refusal."""
        self.refused[tenant, status] += 1
        omitted = self._lines.admit((tenant, status))
        if omitted is None:
            return
        id_ = request_id(request)
        level = logging.ERROR if status == 500 else logging.INFO
        _log.log(
            level,
            "request %s%s refused with %d: %s%s",
            id_,
            f" of {tenant}" if tenant else "",
            status,
            reason[:MAX_REASON],
            omitted_lines(omitted),
            extra={
                "request_id": id_,
                "tenant": tenant,
                "status": status,
                "path": request.url.path[:200],
                "left_out": omitted,
            },
        )

    def late(self, request: Request, tenant: str, waited_s: float, served_s: float) -> None:
        """Record an answer after its deadline."""
        omitted = self._lines.admit((tenant, "late"))
        if omitted is None:
            return
        id_ = request_id(request)
        _log.info(
            "request %s of %s answered late: it waited %.0f ms and took %.0f ms%s",
            id_,
            tenant,
            1e3 * waited_s,
            1e3 * served_s,
            omitted_lines(omitted),
            extra={
                "request_id": id_,
                "tenant": tenant,
                "status": 200,
                "waited_s": round(waited_s, 4),
                "served_s": round(served_s, 4),
                "left_out": omitted,
            },
        )
