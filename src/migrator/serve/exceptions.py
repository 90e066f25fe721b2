"""Reasons to refuse a request, each with its HTTP status; the message says what to do next."""

from __future__ import annotations

from migrator.core.errors import MigratorError


class RefusedError(MigratorError):
    """The request is not answered as asked."""

    status = 500
    retry_after_s: int | None = None
    """Sent as Retry-After."""


class MalformedError(RefusedError):
    """The request cannot be understood."""

    status = 400


class NoTokenError(RefusedError):
    """The token is missing or unknown."""

    status = 401


class ForbiddenError(RefusedError):
    """The token, or the page that sent the request, does not permit it."""

    status = 403


class NotFoundError(RefusedError):
    """Nothing has that name."""

    status = 404


class ConflictError(RefusedError):
    """The current state does not allow it."""

    status = 409


class TooLargeError(RefusedError):
    """The body is larger than allowed."""

    status = 413


class MediaTypeError(RefusedError):
    """The content type or encoding is not supported."""

    status = 415


class OverloadedError(RefusedError):
    """The tenant's queue is full."""

    status = 429


class FailedError(RefusedError):
    """The model failed on it, or its workers were lost."""

    status = 500


class NoWorkerError(RefusedError):
    """No instance of the tenant was ready before the deadline."""

    status = 503


class DrainedError(RefusedError):
    """An operator has drained the tenant."""

    status = 503
    retry_after_s = 30


class LateError(RefusedError):
    """The deadline cannot be met."""

    status = 504


class NotStoredError(RefusedError):
    """Something, such as a label, could not be written to disk; nothing was changed."""

    status = 507
