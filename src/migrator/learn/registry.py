"""Models and benchmarks by name; a user's own model by import path."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from migrator.core.errors import InputError
from migrator.core.import_path import FORM, parts_of
from migrator.core.registry import found_in, pick
from migrator.learn.benchmarks.benchmark import Benchmark
from migrator.learn.model import Model, require_model

if TYPE_CHECKING:
    from migrator.learn.torch_model import TorchModel


@cache
def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by name."""
    return found_in("migrator.learn.benchmarks", "BENCHMARKS")


def benchmark(name: str) -> Benchmark:
    """The benchmark called `name`; an unknown name is answered with the nearest ones."""
    return pick("benchmark", name, benchmarks())


@cache
def models() -> dict[str, type[TorchModel]]:
    """Every model of the zoo by name."""
    require_torch()
    return found_in("migrator.learn.zoo", "MODELS")


def model_class(name: str) -> type[Model]:
    """The model called `name`, or the class at `package.module:Class`."""
    if ":" in name:
        return _imported(name)
    return pick("model", name, models())


def build(name: str, classes: int, seed: int, pixels: int | None = None) -> Model:
    """A new model; `pixels` is for image models that can do with smaller images."""
    kind = model_class(name)
    if pixels is None:
        return kind.build(classes, seed)
    if "pixels" not in inspect.signature(kind.build).parameters:
        raise InputError(f"--pixels: {name} does not take a size; leave the option out")
    sized: Callable[..., Model] = kind.build
    return sized(classes, seed, pixels=pixels)


def require_torch() -> None:
    """InputError says how to get what models are made of."""
    for needed in ("torch", "safetensors"):
        try:
            import_module(needed)
        except ModuleNotFoundError as error:
            raise InputError(
                f"models need {needed}, which is not installed: pip install 'migrator[learn]'"
            ) from error


def _imported(path: str) -> type[Model]:
    parts = parts_of(path)
    if parts is None:
        raise InputError(f"model: {path[:100]!r} is no import path; write {FORM}")
    module_name, name = parts
    found: object = _module(module_name, path)
    try:
        for each in name.split("."):
            found = getattr(found, each)
    except AttributeError as error:
        raise InputError(
            f"model: {module_name} has no {name}; check the name after the colon"
        ) from error
    return require_model(found, path)


def _module(name: str, path: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # what is in the current folder is found as `python -m` finds it
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"model: {error.name} cannot be imported; check the path {path[:100]} and where "
            "Python looks (the current folder, PYTHONPATH)"
        ) from error
    except (Exception, SystemExit) as error:
        raise InputError(
            f"model: importing {name} failed ({type(error).__name__}: {error}); correct the module"
        ) from error
