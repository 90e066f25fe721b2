"""Connections to a Ray cluster. Ray is imported on use."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from migrator.core.errors import InputError
from migrator.io.spawn import one_line

ANSWERS_WITHIN_S = 5.0
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}
RAY_TOKEN = (
    "where Ray asks for a token: `ray get-auth-token --generate` once, the same token on every "
    "machine, and `export RAY_AUTH_MODE=token` before `ray start` and before this"
)
"""How Ray's authentication is set up."""


def import_ray(option: str = "--cluster") -> Any:
    """Import ray; InputError if it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ModuleNotFoundError as error:
        raise InputError(
            f"{option} needs ray, which is not installed: pip install 'migrator-gpu[cluster]'"
        ) from error


@contextmanager
def connect_to_ray(address: str, option: str, **settings: Any) -> Iterator[Any]:
    """Connect to the Ray cluster at the address, and disconnect on exit."""
    ray = import_ray(option)
    listens = False
    try:
        listens = _is_listening(address)
        ray.init(address=address, logging_level="ERROR", log_to_driver=False, **settings)
    except (OSError, ValueError) as error:
        if not listens:
            raise InputError(
                f"{option}: no Ray cluster answers at {address!r} ({type(error).__name__}); start "
                f"one with `ray start --head` and give its address ({RAY_TOKEN})"
            ) from error
        raise InputError(
            f"{option}: {address!r} is in use, but not by a Ray cluster that can be joined "
            f"({type(error).__name__}); run this on a machine that is part of it ({RAY_TOKEN})"
        ) from error
    except (RuntimeError, ray.exceptions.RayError) as error:
        # for example if Ray or Python have other versions there
        raise InputError(
            f"{option}: the Ray cluster at {address!r} cannot be joined ({one_line(error)}); "
            f"have the same Ray and Python on every machine ({RAY_TOKEN})"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _is_listening(address: str) -> bool:
    """Check that HOST:PORT, or Ray's address for `auto`, accepts connections; OSError if not.

    Return False if the address has no port and was not checked. Ray would retry for minutes, also
    at an address left by a crashed cluster.
    """
    if address == "auto":
        # private, and `ray` is capped for it: no public function tells which address Ray will use
        services = import_module("ray._private.services")
        address = services.get_ray_address_from_environment(address, None)
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S).close()
        return True
    return False
