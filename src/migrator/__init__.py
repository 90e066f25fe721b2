"""MIGRator: plans, second by second, which MIG instance serves or trains which tenant.

import migrator

migrator.plan("window.yaml")
migrator.simulate("my.yaml", policy="ekya")
migrator.compare("my.yaml", ["migrator", "ekya"])
with migrator.serve("live.yaml") as server: ...
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from migrator.api import compare, plan, policy, simulate
    from migrator.api.server import serve
    from migrator.core.errors import InputError, MigratorError, PolicyWarning

__version__ = "0.1.0"
__all__ = [
    "InputError",
    "MigratorError",
    "PolicyWarning",
    "__version__",
    "compare",
    "plan",
    "policy",
    "serve",
    "simulate",
]

_HOMES = {
    "compare": "migrator.api",
    "plan": "migrator.api",
    "policy": "migrator.api",
    "serve": "migrator.api",
    "simulate": "migrator.api",
    "InputError": "migrator.core.errors",
    "MigratorError": "migrator.core.errors",
    "PolicyWarning": "migrator.core.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
