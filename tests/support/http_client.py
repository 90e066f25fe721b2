"""Requests on connections of their own, as those of `httpx.get`."""

from typing import Any

import httpx

HTTP = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
"""Made once: making it reads all certificates of the system, which takes a tenth of a second."""


def status_of(url: str) -> Any:
    """What a server says of itself."""
    return HTTP.get(f"{url}/admin/status").json()
