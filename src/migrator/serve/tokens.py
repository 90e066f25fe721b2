"""Who may ask for what: bearer tokens, one per tenant and one for administration.

Only digests are kept, and every comparison takes the same time whatever was sent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from migrator.core.errors import InputError
from migrator.serve.refusals import ForbiddenError, NoTokenError


@dataclass(frozen=True)
class Holder:
    """Whose token came with a request."""

    tenant: str | None = None
    admin: bool = False

    def may_use(self, tenant: str) -> bool:
        """Whether that tenant's model is for the holder."""
        return self.admin or self.tenant == tenant


class Tokens:
    """The tokens as SHA-256 digests in hexadecimal; without any, everybody may do everything."""

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
        """Whether anybody needs one."""
        return bool(self._known)

    def holder(self, authorization: str | None) -> Holder:
        """Whose token a request's Authorization header carries; NoTokenError for nobody's."""
        if not self._known:
            return Holder(admin=True)
        scheme, _, token = (authorization or "").partition(" ")
        sent, found = digest(token.strip()), None
        for holder, known in self._known:
            if hmac.compare_digest(sent, known):
                found = holder
        if scheme.lower() != "bearer" or found is None:
            raise NoTokenError(
                "token: none that is known here; send the header 'Authorization: Bearer TOKEN'"
            )
        return found

    def require_tenant(self, authorization: str | None, tenant: str) -> Holder:
        """The holder, if the tenant's model is for it."""
        holder = self.holder(authorization)
        if not holder.may_use(tenant):
            raise ForbiddenError("token: not for this model; use the token of the model's tenant")
        return holder

    def require_admin(self, authorization: str | None) -> Holder:
        """The holder, if it is the administration."""
        holder = self.holder(authorization)
        if not holder.admin:
            raise ForbiddenError("token: not for administration; use the token for administration")
        return holder


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def require_safe(host: str, tokens: Tokens) -> None:
    """Refuse to listen where others can reach us while nobody needs a token."""
    if not tokens.configured and not is_loopback(host):
        raise InputError(
            f"host: {host} can be reached by others and no tokens are set; set tokens, or listen "
            "on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
