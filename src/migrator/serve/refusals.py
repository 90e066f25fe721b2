"""What a request can be refused for; every refusal has the HTTP status the API answers with."""

from __future__ import annotations

from migrator.core.errors import MigratorError


class RefusedError(MigratorError):
    """A request that is not answered; the message says why and what to do next."""

    status = 500
    retry_after_s: int | None = None
    """When to ask again, where that can be said."""


class MalformedError(RefusedError):
    """The request cannot be understood."""

    status = 400


class NoTokenError(RefusedError):
    """No token, or one that nobody was given."""

    status = 401


class ForbiddenError(RefusedError):
    """The token is somebody else's."""

    status = 403


class NotFoundError(RefusedError):
    """There is nothing of that name."""

    status = 404


class ConflictError(RefusedError):
    """As things stand it cannot be done."""

    status = 409


class TooLargeError(RefusedError):
    """The body is larger than allowed."""

    status = 413


class MediaTypeError(RefusedError):
    """The body is of a kind that is not read here."""

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
    """The tenant is drained: an operator wants no requests of it."""

    status = 503
    retry_after_s = 30


class NotStoredError(RefusedError):
    """Something that could not be written to the disk, as a label; nothing was changed."""

    status = 507


class LateError(RefusedError):
    """Given up: the deadline can no longer be met."""

    status = 504
