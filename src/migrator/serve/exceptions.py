"""The exception for a request that is refused."""

from __future__ import annotations

from migrator.core.errors import MigratorError


class HttpError(MigratorError):
    """The request is answered with this status; the message says what to do next."""

    def __init__(self, status: int, reason: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.retry_after_s = status, retry_after_s


def drained(reason: str) -> HttpError:
    """The refusal while an operator has drained the tenant."""
    return HttpError(503, reason, retry_after_s=30)
