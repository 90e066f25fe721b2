"""No private name of another library in our sources, nor an attribute that makes up an object.

Private: a name with one leading underscore. Such a name may change with any version. What cannot
be avoided stands in `PERMITTED` with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "migrator"
INTERNALS = ("__class__", "__dict__")
"""Attributes that are not to be assigned: an object would become another kind of thing."""
OF_PYTHON = {
    "os._exit": "public: the documented way to end a forked process",
    "_make": "public: of named tuples",
    "_replace": "public: of named tuples",
    "_asdict": "public: of named tuples",
    "_fields": "public: of named tuples",
}
PERMITTED = {
    ("io/ray_cluster.py", "ray._private.services"): (
        "the address that `auto` stands for: `ray.init` tries for minutes to reach one that a "
        "crashed cluster has left, and no public function tells it"
    ),
}
"""(module, name) -> why there is no public way."""


def is_private(name: str) -> bool:
    """Whether a part of a dotted name is private."""
    return any(
        part.startswith("_") and not (part.startswith("__") and part.endswith("__"))
        for part in name.split(".")
    )


@cache
def _parsed(code: str) -> ast.Module:
    return ast.parse(code)


def private_names(code: str) -> Iterator[str]:
    """Every use of another module's or object's private name in this source text."""
    tree = _parsed(code)
    own = _own_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if is_private(alias.name))
            case ast.ImportFrom(module=module, names=names):
                full = (f"{module}.{alias.name}" for alias in names)
                yield from (name for name in full if is_private(name))
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if is_private(
                name
            ) and ast.unparse(function).endswith("import_module"):
                yield name
            case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[_, second, *_]) if (
                isinstance(second, ast.Constant) and is_private(str(second.value))
            ):
                yield str(second.value)
            case ast.Attribute(attr=attribute) if is_private(attribute):
                name = ast.unparse(node)
                if attribute not in own and not {name, attribute} & OF_PYTHON.keys():
                    yield name
            case ast.Attribute(attr=attribute, ctx=ast.Store()) if attribute in INTERNALS:
                yield ast.unparse(node)


def _own_names(tree: ast.Module) -> set[str]:
    """The private names that the module itself defines: methods, fields and attributes of self."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.ClassDef(body=body):
                slots = [statement for statement in body if isinstance(statement, ast.Assign)]
                for slot in slots:
                    if ast.unparse(slot.targets[0]) == "__slots__":
                        names |= set(ast.literal_eval(slot.value))
    return names


def inherited_names(code: str) -> set[str]:
    """Private attributes of `self` and `super()` that the module does not define."""
    tree = _parsed(code)
    own = _own_names(tree)
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and is_private(node.attr)
        and node.attr not in own
        and ast.unparse(node.value) in ("self", "cls", "super()")
    }


def test_no_private_name_of_another_library() -> None:
    """A subclass may use those of its base class, which may be in any of our modules."""
    modules = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    ours = set[str]().union(*(_own_names(_parsed(code)) for code in modules.values()))
    used = set()
    for path, code in modules.items():
        inherited = inherited_names(code) & ours
        for name in private_names(code):
            if name.rpartition(".")[2] not in inherited:
                used.add((str(path.relative_to(SOURCE)), name))
    assert used == PERMITTED.keys()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import numba._dynfunc", {"numba._dynfunc"}),
        ("from numba._dynfunc import make", {"numba._dynfunc.make"}),
        ("from numba import _make_it", {"numba._make_it"}),
        ("import_module('ray._private.services')", {"ray._private.services"}),
        ("import ray\nray._private.services.find()", {"ray._private"}),
        ("def f(pool):\n    return pool._processes", {"pool._processes"}),
        ("getattr(pool, '_processes')", {"_processes"}),
        ("module.__class__ = Callable", {"module.__class__"}),
        ("typing.__dict__ = other.__dict__", {"typing.__dict__"}),
        ("class A:\n    def _f(self): ...\n    def g(self, other): other._f()", set()),
        ("os._exit(1)", set()),
        ("row._replace(a=1)", set()),
        ("from __future__ import annotations", set()),
    ],
)
def test_what_counts_as_private(code: str, found: set[str]) -> None:
    assert set(private_names(code)) == found
