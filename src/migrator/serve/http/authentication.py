"""Bearer tokens, one per tenant and one for administration; without tokens, only this machine.

Only digests are kept, and every comparison takes the same time whatever was sent.

Without tokens the server listens on a loopback address, but a web page from another site that is
open in a browser on this machine can send requests to it too. Such a page cannot send
`application/json` across sites without a preflight request, which is never answered; it cannot
hide its Origin; and one whose name resolves to this machine (DNS rebinding) shows that name as
the Host.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.requests import Request

from migrator.core.errors import InputError
from migrator.serve.exceptions import ForbiddenError, MediaTypeError, NoTokenError
from migrator.serve.http.requests import MEDIA_TYPES, header_of, media_type

_HOST = re.compile(r"(\[(?P<six>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(:\d+)?")
_OWN_SITES = ("same-origin", "none")
"""Sec-Fetch-Site of a page of this server, and of an address typed in."""


@dataclass(frozen=True)
class Holder:
    """The owner of the token of a request."""

    tenant: str | None = None
    admin: bool = False

    def may_use(self, tenant: str) -> bool:
        """Whether the holder may use that tenant's model."""
        return self.admin or self.tenant == tenant


class Tokens:
    """Tokens as SHA-256 digests in hexadecimal; without any, every request is allowed."""

    def __init__(self, tenants: Mapping[str, str] | None = None, admin: str | None = None) -> None:
        self._known = [(Holder(tenant=name), each) for name, each in (tenants or {}).items()]
        if admin is not None:
            self._known.append((Holder(admin=True), admin))
        for holder, each in self._known:
            if len(each) != 64 or set(each) - set("0123456789abcdef"):
                raise InputError(
                    f"token of {holder.tenant or 'administration'}: not a SHA-256 digest; give 64 "
                    "lower case hexadecimal digits"
                )

    @property
    def configured(self) -> bool:
        """Whether requests need a token."""
        return bool(self._known)

    def holder(self, authorization: str | None) -> Holder:
        """The holder of the token in an Authorization header; NoTokenError without one."""
        if not self._known:
            return Holder(admin=True)
        scheme, _, token = (authorization or "").partition(" ")
        sent, found = digest(token.strip()), None
        for holder, known in self._known:
            if hmac.compare_digest(sent, known):
                found = holder
        if scheme.lower() != "bearer" or found is None:
            raise NoTokenError(
                "token: missing or unknown; send the header 'Authorization: Bearer TOKEN'"
            )
        return found

    def require_tenant(self, authorization: str | None, tenant: str) -> Holder:
        """The holder; ForbiddenError if it may not use the tenant's model."""
        holder = self.holder(authorization)
        if not holder.may_use(tenant):
            raise ForbiddenError("token: not for this model; use the token of the model's tenant")
        return holder

    def require_admin(self, authorization: str | None) -> Holder:
        """The holder; ForbiddenError if it is not the administration."""
        holder = self.holder(authorization)
        if not holder.admin:
            raise ForbiddenError("token: not for administration; use the token for administration")
        return holder


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def require_admin(request: Request, tokens: Tokens) -> None:
    """Refuse a request without the token for administration, or from a page of another site."""
    require_own_page(request, tokens)
    tokens.require_admin(header_of(request, "authorization"))


def require_own_page(request: Request, tokens: Tokens) -> None:
    """Refuse what a page of another site sends; with tokens, the token is enough."""
    if tokens.configured:
        return
    host = (header_of(request, "host") or "").strip().lower()
    if not _is_this_machine(host):
        raise ForbiddenError(
            f"host: {host[:80] or 'none'} is not this machine; without tokens use 127.0.0.1 or "
            "localhost"
        )
    origin = header_of(request, "origin")
    site = header_of(request, "sec-fetch-site") or "none"
    foreign = origin is not None and origin.strip().lower().partition("://")[2] != host
    if foreign or site.strip().lower() not in _OWN_SITES:
        raise ForbiddenError(
            f"origin: a page of {(origin or site)[:80]} may not send this; use the page of this "
            "server, or set tokens"
        )


def require_json(request: Request) -> None:
    """Refuse a body that is not declared as JSON: it may come from a page of another site."""
    _require_type(request, MEDIA_TYPES[:1])


def require_own_sender(request: Request, tokens: Tokens) -> None:
    """Like `require_own_page` for bodies with tensor data, which need not be JSON."""
    require_own_page(request, tokens)
    if not tokens.configured:
        _require_type(request, MEDIA_TYPES)


def _require_type(request: Request, known: Sequence[str]) -> None:
    kind = media_type(request)
    if kind not in known:
        raise MediaTypeError(
            f"content-type: {kind[:80] or 'none'} is not accepted; send {' or '.join(known)}"
        )


def _is_this_machine(host: str) -> bool:
    """Whether a Host header is localhost or a loopback address, with any port."""
    found = _HOST.fullmatch(host)
    name = "" if found is None else found["six"] or found["name"]
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
