"""MIGRator: plans, second by second, which MIG instance serves or trains which tenant.

    import migrator

    migrator.plan("window.yaml")
    migrator.simulate("my.yaml", policy="ekya")
    migrator.compare("my.yaml", ["migrator", "ekya"])
    with migrator.serve("live.yaml") as server: ...

`plan`, `simulate` and `serve` are packages that can be called (docs/decisions/015).
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from migrator.api import compare, plan, policy, serve, simulate
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
    "policy": "migrator.api",
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


class _CallablePackage(ModuleType):
    """A package whose call is the function of the same name in `migrator.api`."""

    def __call__(self, *args: object, **options: object) -> object:
        return self._function()(*args, **options)

    @property
    def __signature__(self) -> object:
        return import_module("inspect").signature(self._function())

    def _function(self) -> Callable[..., object]:
        function: Callable[..., object] = getattr(
            import_module("migrator.api"), self.__name__.rpartition(".")[2]
        )
        return function


for _name in ("plan", "serve", "simulate"):
    import_module(f"migrator.{_name}").__class__ = _CallablePackage
