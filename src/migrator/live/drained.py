"""Which tenants are drained, on disk: a daemon that is started again drains them still."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from migrator.core.errors import InputError
from migrator.learn.atomic import written_whole


class Drained:
    """The names in `path`; a file that is not there names nobody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = _read(path)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._names

    def keep(self, tenant: str, *, drained: bool) -> None:
        """Write down that it is, or is not any more; InputError leaves it as it was."""
        names = self._names | {tenant} if drained else self._names - {tenant}
        with written_whole(self._path) as unfinished:
            unfinished.write_text(_written(names), encoding="utf-8")
        self._names = names


def _written(names: Collection[str]) -> str:
    return json.dumps({"version": 1, "drained": sorted(names)}) + "\n"


def _read(path: Path) -> frozenset[str]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        names = frozenset(told["drained"])
        if told["version"] != 1 or not all(isinstance(each, str) for each in names):
            raise ValueError("another version")
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: which tenants are drained cannot be read from it ({error}); delete it, then "
            "none is"
        ) from error
    return names
