"""Models and benchmarks by name; a user's own model by its import path."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from migrator.core.errors import InputError
from migrator.core.registry import found_in, import_class, pick
from migrator.learn.benchmarks.benchmark import Benchmark
from migrator.learn.model import Model, require_model

if TYPE_CHECKING:
    from migrator.learn.torch_model import TorchModel


@cache
def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by name."""
    return found_in("migrator.learn.benchmarks", "BENCHMARKS")


def benchmark(name: str) -> Benchmark:
    """The benchmark called `name`; InputError suggests the nearest names."""
    return pick("benchmark", name, benchmarks())


@cache
def models() -> dict[str, type[TorchModel]]:
    """Every built-in model by name."""
    require_torch()
    return found_in("migrator.learn.zoo", "MODELS")


def model_class(name: str) -> type[Model]:
    """The model called `name`, or the class at `package.module:Class`."""
    if ":" in name:
        return require_model(import_class("model", name), name)
    return pick("model", name, models())


def build(name: str, classes: int, seed: int, pixels: int | None = None) -> Model:
    """A new model; `pixels` is the side of the images, for models that accept several."""
    kind = model_class(name)
    if pixels is None:
        return kind.build(classes, seed)
    if "pixels" not in inspect.signature(kind.build).parameters:
        raise InputError(f"--pixels: {name} does not take a size; leave the option out")
    sized: Callable[..., Model] = kind.build
    return sized(classes, seed, pixels=pixels)


def require_torch() -> None:
    """InputError with the install command if torch or safetensors is missing."""
    for needed in ("torch", "safetensors"):
        try:
            import_module(needed)
        except ModuleNotFoundError as error:
            raise InputError(
                f"models need {needed}, which is not installed: pip install 'migrator[learn]'"
            ) from error
