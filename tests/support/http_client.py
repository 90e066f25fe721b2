"""Requests on connections of their own, as those of `httpx.get`."""

import httpx

HTTP = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
"""Made once: making it reads all certificates of the system, which takes a tenth of a second."""
