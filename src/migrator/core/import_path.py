"""A class named by `package.module:Class`: only its form, nothing is imported to look at it."""

from __future__ import annotations

FORM = "package.module:Class"


def parts_of(path: str) -> tuple[str, str] | None:
    """Module and class of an import path; None where it is none."""
    module, _, name = path.partition(":")
    words = (*module.split("."), *name.split("."))
    return (module, name) if all(each.isidentifier() for each in words) else None
