"""How much one client may ask of the server, and bodies read within that."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from migrator.serve.refusals import MediaTypeError, TooLargeError

MEDIA_TYPES = ("application/json", "application/octet-stream")


@dataclass(frozen=True)
class Limits:
    """What protects the server from its clients."""

    body_bytes: int = 16 * 2**20
    body_s: float = 10.0
    """From the end of the headers to the end of the body."""
    header_bytes: int = 32 * 2**10
    header_s: float = 10.0
    """From the connection, or the first byte of a request, to the end of its headers."""
    keep_alive_s: int = 30
    write_s: float = 10.0
    """Within which a client must have read some of what is written to it."""
    write_bytes_s: float = 1024.0
    """The least that it must read, on average over that time."""
    connections: int = 1024
    recent_bytes: int = 64 * 2**20
    """Per tenant: inputs of answered requests, kept so that feedback can name them."""


def header_of(request: Request, name: str) -> str | None:
    """One header; several times cheaper than asking Starlette for it."""
    wanted = name.encode()
    for key, value in request.scope["headers"]:
        if key == wanted:
            return str(value, "latin-1")
    return None


async def read_body(request: Request, limits: Limits) -> bytes:
    """The whole body, refused as soon as it is too large; the connection ends slow ones."""
    _require_media_type(request)
    declared = header_of(request, "content-length") or "0"
    if declared.isdecimal() and int(declared[:18]) > limits.body_bytes:
        raise _too_large(limits)
    return await _read(request, limits)


async def _read(request: Request, limits: Limits) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > limits.body_bytes:
            raise _too_large(limits)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(limits: Limits) -> TooLargeError:
    return TooLargeError(
        f"body: larger than {limits.body_bytes} bytes; send fewer rows, or send them as binary data"
    )


def _require_media_type(request: Request) -> None:
    kind = (header_of(request, "content-type") or MEDIA_TYPES[0]).partition(";")[0].strip().lower()
    if kind not in MEDIA_TYPES:
        raise MediaTypeError(
            f"content-type: {kind[:80]} is not read here; send {' or '.join(MEDIA_TYPES)}"
        )
    encoding = (header_of(request, "content-encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise MediaTypeError(f"content-encoding: {encoding[:80]} is not read here; send it plain")
