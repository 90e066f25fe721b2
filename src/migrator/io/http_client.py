"""Blocking HTTP calls to MIGRator's daemons.

No proxies and no redirects, because calls carry tokens.
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from migrator.core.errors import InputError, MigratorError

_MOST_BYTES = 2**22
_PORTS = {"http": 80, "https": 443}

_log = logging.getLogger(__name__)


class NoAnswerError(MigratorError):
    """The server cannot be reached or did not answer in time; the message says why."""


@dataclass(frozen=True)
class Address:
    """The address of a server."""

    host: str
    port: int
    secure: bool
    path: str
    """Prefix of all paths, without a slash at its end."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address_of(url: str, option: str = "--url") -> Address:
    """Parse the URL that an option gives; InputError if it is invalid."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in _PORTS or not host or not url.isprintable() or " " in url:
        raise InputError(
            f"{option}: {url[:100]!r} is no address of a server; write http://127.0.0.1:8600"
        )
    return Address(
        host, port or _PORTS[parts.scheme], parts.scheme == "https", parts.path.rstrip("/")
    )


@dataclass(frozen=True)
class Reply:
    """Response of a server."""

    status: int
    headers: Mapping[str, str]
    """Header names are in lower case."""
    body: bytes

    def json_object(self) -> Mapping[str, Any] | None:
        try:
            content = json.loads(self.body)
        except ValueError:
            return None
        return content if isinstance(content, dict) else None


def request(
    url: str,
    method: str,
    path: str,
    *,
    timeout_s: float,
    token: str | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> Reply:
    """Send one request with `body` as JSON. Raises NoAnswerError with `url` and the reason.

    `context`: what is trusted of servers with TLS; None: the CAs of the system.
    """
    parts = urlsplit(url)
    content = None if body is None else json.dumps(body)
    sent = dict(headers or {})
    if content is not None:
        sent["content-type"] = "application/json"
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
        warn_if_clear(url)
    host = parts.hostname or ""
    try:
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=timeout_s, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        try:
            connection.request(method, path, content, sent)
            reply = connection.getresponse()
            received = {name.lower(): value for name, value in reply.getheaders()}
            return Reply(reply.status, received, reply.read(_MOST_BYTES))
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = certificate_trouble(error) or error or type(error).__name__
        raise NoAnswerError(f"{url} does not answer ({why})") from error


def certificate_trouble(error: BaseException) -> str:
    """What to do about a server whose certificate is not trusted; "" if that is not the error."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return ""
    return (
        f"its certificate is not trusted: {error.verify_message}; name the file of its CA with "
        "--ca or SSL_CERT_FILE, and the server as the certificate does"
    )


def warn_if_clear(url: str) -> None:
    """Log a warning, once for an address, where a token sent there can be read on the network."""
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname:
        _warn_if_elsewhere(parts.hostname, parts.netloc.rpartition("@")[2])


@lru_cache(maxsize=1024)
def _warn_if_elsewhere(host: str, shown: str) -> None:
    if not _is_this_machine(host):
        _log.warning("a token is sent in clear to %s; use https or a trusted network", shown)


def _is_this_machine(host: str) -> bool:
    """Whether all addresses of a host are of this machine, where a socket may have them."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.bind(address)
    except OSError:
        return False
    return True
