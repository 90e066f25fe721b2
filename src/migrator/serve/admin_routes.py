"""POST /admin/actions: what an operator does to the running system, done and answered in words."""

from __future__ import annotations

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from migrator.core.action import ActionKind, Outcome
from migrator.serve.backend import Backend
from migrator.serve.limits import header_of, read_body
from migrator.serve.model_routes import json_response
from migrator.serve.origin import require_json, require_own_page
from migrator.serve.protocol import Identifier, decoded, decoder
from migrator.serve.refusals import (
    ConflictError,
    MalformedError,
    NotFoundError,
    NotStoredError,
    RefusedError,
)

CLI_AGENT = "migrator-cli"
"""How our own command line calls itself; only for the record."""


class ActionRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """pause, resume, replan, or one of roll-back, drain, undrain with its tenant."""

    action: Identifier
    tenant: Identifier | None = None


class ActionAnswer(Struct, kw_only=True):
    """It is done; what that was in words."""

    outcome: str
    words: str


_READER = decoder(ActionRequest)


class ActionRoute:
    """Takes actions."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def act(self, request: Request) -> Response:
        """One action."""
        backend = self._backend
        require_own_page(request, backend.tokens)
        backend.require_admin(request)
        require_json(request)
        asked = decoded(_READER, await read_body(request, backend.limits))
        kind = _kind(asked.action)
        self._require_tenant(kind, asked.tenant)
        if backend.act is None:
            raise NotFoundError("action: this server takes none; ask `migrator serve`")
        acted = await backend.act(kind, asked.tenant, _who(request))
        if acted.outcome is Outcome.REFUSED:
            raise ConflictError(acted.words)
        if acted.outcome is Outcome.FAILED:
            raise NotStoredError(acted.words) if acted.unwritten else RefusedError(acted.words)
        return json_response(ActionAnswer(outcome=acted.outcome, words=acted.words))

    def _require_tenant(self, kind: ActionKind, tenant: str | None) -> None:
        known = ", ".join(self._backend.models)
        if not kind.of_tenant:
            if tenant is not None:
                raise MalformedError(f"tenant: {kind} is about all of them; leave it out")
        elif tenant is None:
            raise MalformedError(f"tenant: {kind} is about one of them; name one of {known}")
        elif tenant not in self._backend.models:
            raise NotFoundError(f"tenant: there is no {tenant}; name one of {known}")


def _kind(action: str) -> ActionKind:
    try:
        return ActionKind(action)
    except ValueError:
        raise MalformedError(f"action: there is no {action}; use {', '.join(ActionKind)}") from None


def _who(request: Request) -> str:
    """For the record: a browser says where its page is from, our command line who it is."""
    if header_of(request, "origin") is not None:
        return "page"
    agent = header_of(request, "user-agent") or ""
    return "cli" if agent.startswith(CLI_AGENT) else "api"
