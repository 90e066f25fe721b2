"""Distributions that are installed here: what one needs, and a folder with some of them alone."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement


def required(texts: Iterable[str]) -> set[str]:
    """The distributions that these requirements install, with those that they need in turn."""
    needed_packages: dict[tuple[str, frozenset[str]], None] = {}
    todo = [Requirement(text) for text in texts]
    while todo:
        requirement = todo.pop()
        key = (requirement.name, frozenset(requirement.extras))
        if key in needed_packages:
            continue
        needed_packages[key] = None
        try:
            needed = distribution(requirement.name).requires or []
        except PackageNotFoundError:  # of another platform
            continue
        for dependency in map(Requirement, needed):
            wanted = ({"extra": extra} for extra in (*requirement.extras, ""))
            if dependency.marker is None or any(map(dependency.marker.evaluate, wanted)):
                todo.append(dependency)
    return {name for name, _ in needed_packages}


def link_packages(site: Path, names: Iterable[str]) -> None:
    """Make the folder one that has the packages of these distributions, where they are here."""
    for name in names:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(found.locate_file(top)))
