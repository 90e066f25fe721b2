"""Models and benchmarks by name; a user's own model by its import path."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from migrator.core.errors import InputError
from migrator.core.registry import LIBRARIES, found_in, import_class, pick
from migrator.learn.benchmarks.benchmark import Benchmark, Encode
from migrator.learn.benchmarks.folder import PREFIX, folder_benchmark
from migrator.learn.model import Modality, Model, require_model
from migrator.learn.text import all_tokens

if TYPE_CHECKING:
    from migrator.learn.torch_model import TorchModel


@cache
def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by name."""
    return found_in("migrator.learn.benchmarks", "BENCHMARKS")


def benchmark(name: str) -> Benchmark:
    """The benchmark called `name`, or the user's samples in folder:PATH.

    InputError suggests the nearest names.
    """
    if name.startswith(PREFIX):
        return folder_benchmark(name)
    return pick("benchmark", name, benchmarks())


@cache
def models() -> dict[str, type[TorchModel]]:
    """Every built-in model by name."""
    require_torch()
    return found_in("migrator.learn.zoo", "MODELS")


def model_class(name: str) -> type[Model]:
    """The model called `name`, hf:FOLDER_OR_ID, timm:NAME, or the class at package.module:Class."""
    if name.startswith(LIBRARIES):
        if not name.isprintable():
            raise InputError(f"model: {name[:200]!r} contains unprintable characters; remove them")
        return _library_model(name)
    if ":" in name:
        return require_model(import_class("model", name), name)
    return pick("model", name, models())


@cache
def _library_model(name: str) -> type[TorchModel]:
    """One class per name, whose library is loaded when a model is built."""
    require_torch()
    library, function = ("timm_network", "timm_class") if name.startswith("timm:") else _HF
    found: type[TorchModel] = getattr(import_module(f"migrator.learn.{library}"), function)(name)
    return found


_HF = ("hf_models", "hf_class")


def encoder(name: str, modality: Modality) -> Encode:
    """How texts become inputs of the model called `name`; packaged models read hashed words."""
    if modality is Modality.TEXT and ":" in name:
        own: Encode = getattr(model_class(name), "encode", all_tokens)
        return own
    return all_tokens


def build(
    name: str, classes: int, seed: int, pixels: int | None = None, *, pretrained: bool = True
) -> Model:
    """A new model; `pixels` is the side of the images, for models that accept several.

    Without `pretrained` its weights are random, also where published ones belong to the name.
    """
    model = _new_model(name, classes, seed, pixels)
    load = getattr(model, "load_pretrained", None)
    if pretrained and load is not None:
        load()
    return model


def _new_model(name: str, classes: int, seed: int, pixels: int | None) -> Model:
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
