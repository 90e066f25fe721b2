"""Who may send a request: tokens, and pages of other sites.

There is a bearer token per tenant and one for administration. Only digests are kept, and every
comparison takes the same time whatever was sent. Without tokens the server listens on a loopback
address, but a web page from another site that is open in a browser on this machine can send
requests to it too. Such a page cannot send `application/json` across sites without a preflight
request, which is never answered; it cannot hide its Origin; and one whose name resolves to this
machine (DNS rebinding) shows that name as the Host.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.requests import Request

from migrator.core.errors import HttpError, InputError
from migrator.serving.http.requests import header_of, headers_of

ORDER_KEY = "migrator-order-key"
"""The header with the key that an agent shares with its daemon."""
_OWN_SITES = ("same-origin", "none")
"""Sec-Fetch-Site of a page of this server, and of an address typed in."""
_HOST = re.compile(r"(\[(?P<six>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(:\d+)?")


@dataclass(frozen=True)
class TokenHolder:
    """The owner of the token of a request."""

    tenant: str | None = None
    admin: bool = False

    def may_use(self, tenant: str) -> bool:
        return self.admin or self.tenant == tenant


_ANYONE = TokenHolder(admin=True)
"""Where there are no tokens."""


class Tokens:
    """Tokens as SHA-256 digests in hexadecimal; without any, every request is allowed."""

    def __init__(self, tenants: Mapping[str, str] | None = None, admin: str | None = None) -> None:
        given = [(TokenHolder(tenant=name), tenant) for name, tenant in (tenants or {}).items()]
        if admin is not None:
            given.append((TokenHolder(admin=True), admin))
        for holder, token_hash in given:
            if not re.fullmatch("[0-9a-f]{64}", token_hash):
                raise InputError(
                    f"token of {holder.tenant or 'administration'}: not a SHA-256 digest; give 64 "
                    "lower case hexadecimal digits"
                )
        self._holders = [(holder, bytes.fromhex(token_hash)) for holder, token_hash in given]

    def knows(self, tenant: str) -> bool:
        return any(holder.tenant == tenant for holder, _ in self._holders)

    def set(self, tenant: str, token_hash: str) -> None:
        others = [
            (holder, expected) for holder, expected in self._holders if holder.tenant != tenant
        ]
        self._holders = [*others, (TokenHolder(tenant=tenant), bytes.fromhex(token_hash))]

    @property
    def configured(self) -> bool:
        return bool(self._holders)

    def holder(self, request: Request) -> TokenHolder:
        """The holder of the token in the Authorization header; HttpError 401 without one."""
        if not self._holders:
            return _ANYONE
        scheme, _, token = headers_of(request).get(b"authorization", b"").partition(b" ")
        sent, found = hashlib.sha256(token.strip()).digest(), None
        for holder, expected in self._holders:
            if hmac.compare_digest(sent, expected):
                found = holder
        if found is None or scheme.lower() != b"bearer":
            raise HttpError(
                401, "token: missing or unknown; send the header 'Authorization: Bearer TOKEN'"
            )
        return found


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def require_tenant(request: Request, tokens: Tokens, tenant: str) -> None:
    """Refuse a request without a token for the tenant's model."""
    if not tokens.holder(request).may_use(tenant):
        raise HttpError(403, "token: not for this model; use the token of the model's tenant")


def require_admin(request: Request, tokens: Tokens) -> None:
    """Refuse a request without the token for administration, or from a page of another site."""
    require_own_page(request, tokens)
    if not tokens.holder(request).admin:
        raise HttpError(403, "token: not for administration; use the token for administration")


def require_own_page(request: Request, tokens: Tokens) -> None:
    """Refuse what a page of another site sends; with tokens, the token is enough."""
    if tokens.configured:
        return
    host = (header_of(request, "host") or "").strip().lower()
    if not _is_this_machine(host):
        raise HttpError(
            403,
            f"host: {host[:80] or 'none'} is not this machine; without tokens use 127.0.0.1 or "
            "localhost",
        )
    origin = header_of(request, "origin")
    site = header_of(request, "sec-fetch-site") or "none"
    foreign = origin is not None and origin.strip().lower().partition("://")[2] != host
    if foreign or site.strip().lower() not in _OWN_SITES:
        raise HttpError(
            403,
            f"origin: a page of {(origin or site)[:80]} may not send this; use the page of this "
            "server, or set tokens",
        )


def _is_this_machine(host: str) -> bool:
    """Whether a Host header names this machine, with or without a port."""
    match = _HOST.fullmatch(host)
    name = match["six"] or match["name"] if match else ""
    return is_loopback(name) or name == "localhost."


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_safe(host: str, tokens: Tokens) -> None:
    """Refuse to listen on an address that others can reach without tokens."""
    if not tokens.configured and not is_loopback(host):
        raise InputError(
            f"host: {host} can be reached by others and no tokens are set; set tokens, or listen "
            "on 127.0.0.1"
        )
