"""Who may act from a browser where nobody needs a token: only our own page.

Without tokens the server listens on this machine alone, but every web page that somebody opens
here can send requests to it too. Such a page cannot send `application/json` to another site
without asking first, which nobody here allows; it cannot hide its Origin; and one that has its
own name point at this machine (DNS rebinding) shows that name as the Host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address

from starlette.requests import Request

from migrator.serve.limits import MEDIA_TYPES, header_of
from migrator.serve.refusals import ForbiddenError, MediaTypeError
from migrator.serve.tokens import Tokens

JSON = "application/json"
_HOST = re.compile(r"(\[(?P<six>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(:\d+)?")
_OWN_SITES = ("same-origin", "none")
"""What a browser says of our own page, and of an address typed in."""


def require_json(request: Request) -> None:
    """The body is said to be JSON: a request without a content type may be a foreign page's."""
    _require_type(request, (JSON,))


def require_own_sender(request: Request, tokens: Tokens) -> None:
    """Refuse a label that another site's page sends: with tensor data its body may be binary."""
    require_own_page(request, tokens)
    if not tokens.configured:
        _require_type(request, MEDIA_TYPES)


def _require_type(request: Request, known: Sequence[str]) -> None:
    kind = (header_of(request, "content-type") or "").partition(";")[0].strip().lower()
    if kind not in known:
        raise MediaTypeError(
            f"content-type: {kind[:80] or 'none'} is not read here; send {' or '.join(known)}"
        )


def require_own_page(request: Request, tokens: Tokens) -> None:
    """Refuse what another site's page sends; with tokens the token says enough."""
    if tokens.configured:
        return
    host = (header_of(request, "host") or "").strip().lower()
    if not _is_this_machine(host):
        raise ForbiddenError(
            f"host: {host[:80] or 'none'} is not this machine; without tokens ask for 127.0.0.1 or "
            "localhost"
        )
    origin = header_of(request, "origin")
    site = header_of(request, "sec-fetch-site") or "none"
    foreign = origin is not None and origin.strip().lower().partition("://")[2] != host
    if foreign or site.strip().lower() not in _OWN_SITES:
        raise ForbiddenError(
            f"origin: a page of {(origin or site)[:80]} may not act here; use the page of this "
            "server, or set tokens"
        )


def _is_this_machine(host: str) -> bool:
    """Whether a Host header names it: localhost or a loopback address, with any port."""
    found = _HOST.fullmatch(host)
    name = "" if found is None else found["six"] or found["name"]
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name in ("localhost", "localhost.")
