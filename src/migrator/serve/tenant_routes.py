"""POST /admin/tenants: a tenant comes to this GPU or goes from it; answered once that is done."""

from __future__ import annotations

from hmac import compare_digest
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from migrator.core.action import Outcome
from migrator.core.errors import InputError, MigratorError, NotWrittenError
from migrator.serve.admin_routes import ActionAnswer
from migrator.serve.backend import Backend, TenantChanges
from migrator.serve.limits import header_of, read_body
from migrator.serve.model_routes import json_response
from migrator.serve.origin import require_json, require_own_page
from migrator.serve.protocol import Identifier, decoded, decoder
from migrator.serve.refusals import (
    ForbiddenError,
    MalformedError,
    NotStoredError,
    RefusedError,
)

ORDER_KEY = "migrator-order-key"
"""The header with the key that an agent shares with its daemon."""


class TenantRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """One of both: who comes, as scenarios have it, or the name of who goes."""

    come: dict[str, Any] | None = None
    go: Identifier | None = None


_READER = decoder(TenantRequest)


class TenantRoute:
    """Takes tenants on and lets them go."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def change(self, request: Request) -> Response:
        """One tenant."""
        backend = self._backend
        require_own_page(request, backend.tokens)
        backend.require_admin(request)
        require_json(request)
        tenants = self._permitted(request)
        asked = decoded(_READER, await read_body(request, backend.limits))
        if (asked.come is None) == (asked.go is None):
            raise MalformedError("come, go: give one of both")
        try:
            if asked.go is not None:
                words = await tenants.dismiss(asked.go)
            else:
                words = await tenants.admit(asked.come)
        except RefusedError:
            raise
        except NotWrittenError as error:
            raise NotStoredError(str(error)) from error
        except InputError as error:
            raise MalformedError(str(error)) from error
        except MigratorError as error:
            raise RefusedError(str(error)) from error
        return json_response(ActionAnswer(outcome=Outcome.DONE, words=words))

    def _permitted(self, request: Request) -> TenantChanges:
        """How to do it: for the agent of a cluster's GPU, which carries out the head's orders."""
        tenants = self._backend.tenants
        if tenants is None:
            raise ForbiddenError(
                "tenants: this daemon is not part of a cluster; change them in the scenario and "
                "start it again"
            )
        sent = (header_of(request, ORDER_KEY) or "").encode()
        if not tenants.order_key or not compare_digest(sent, tenants.order_key.encode()):
            raise ForbiddenError(
                "tenants: only the cluster's head moves them between GPUs; change them in the "
                "scenario of the cluster"
            )
        return tenants
