"""Where tenants are now: the placement that `migrator cluster plan` wrote before."""

from __future__ import annotations

from pathlib import Path

from migrator.core.errors import InputError
from migrator.io.data_file import read_json_file
from migrator.io.file_kind import PLACEMENT
from migrator.io.strict import refuse, shown


def read_current(path: Path) -> dict[str, str]:
    """Read tenant -> GPU from the output of `migrator cluster plan --json`."""
    return read_json_file(path, _placement, PLACEMENT)


def _placement(data: object) -> dict[str, str]:
    if not isinstance(data, dict) or not isinstance(data.get("placement"), dict):
        raise InputError(
            "there is no placement in it; use the output of `migrator cluster plan --json`"
        )
    for tenant, gpu in data["placement"].items():
        if not isinstance(gpu, str):
            refuse(("placement", tenant), f"{shown(gpu)} is no GPU's name", "give its name as text")
    return dict(data["placement"])
