"""Where tenants live now, as `cluster plan --json` wrote it: what a new placement starts from."""

from __future__ import annotations

from pathlib import Path

from migrator.core.errors import InputError
from migrator.io.json_file import read_json_file
from migrator.io.strict import refuse, shown


def read_current(path: Path) -> dict[str, str]:
    """Tenant -> GPU."""
    return read_json_file(path, _placement)


def _placement(data: object) -> dict[str, str]:
    if not isinstance(data, dict) or not isinstance(data.get("placement"), dict):
        raise InputError(
            "there is no placement in it; give what `migrator cluster plan --json` printed"
        )
    for tenant, gpu in data["placement"].items():
        if not isinstance(gpu, str):
            refuse(("placement", tenant), f"{shown(gpu)} is no GPU's name", "give its name as text")
    return dict(data["placement"])
