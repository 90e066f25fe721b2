"""Models and benchmarks by name; a user's own model by its import path, tested before use.

Optional libraries are imported when a model needs them; InputError names the extra to install.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from migrator.core.errors import InputError, MigratorError
from migrator.core.registry import LIBRARIES, found_in, import_class, pick, refuse_file
from migrator.learn.benchmarks.benchmark import Benchmark, Encode
from migrator.learn.benchmarks.folder import PREFIX, folder_benchmark
from migrator.learn.model import Modality, Model, declares_tensors, require_model
from migrator.learn.named_tensors import NamedTensorModel
from migrator.learn.samples import Samples
from migrator.learn.tokens import all_tokens

if TYPE_CHECKING:
    from migrator.learn.torch_model import TorchModel
_ROWS = 4


def transformers() -> Any:
    """The library transformers."""
    if find_spec("torchvision") is not None:
        torchvision()  # transformers imports it where it is installed
    try:
        return import_module("transformers")
    except ModuleNotFoundError as error:
        raise _missing("transformers", "learn", error) from error


def timm() -> Any:
    """The library timm."""
    torchvision()  # timm imports it
    try:
        return import_module("timm")
    except ModuleNotFoundError as error:
        raise _missing("timm", "timm", error) from error


def torchvision() -> Any:
    """The library torchvision, of which models use only the part in Python."""
    try:
        return import_module("torchvision")
    except ModuleNotFoundError as error:
        raise _missing("torchvision", "timm", error) from error
    except RuntimeError:
        # Its compiled part needs the build of torch that it was made for. A wheel for CUDA beside a
        # CPU build of torch lacks these operators, and then its import fails although no
        # classifier uses them. A torchvision that works never comes here.
        _define_operators()
    try:
        return import_module("torchvision")
    except (ImportError, RuntimeError) as error:
        torch = import_module("torch")
        raise InputError(
            f"torchvision does not fit torch {torch.__version__} ({error}); install the "
            "torchvision that belongs to it"
        ) from error


_defined: list[Any] = []
"""Operators vanish with the object that defined them."""


def _define_operators() -> None:
    library = import_module("torch").library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _defined.append(library)


def _missing(library: str, extra: str, error: ModuleNotFoundError) -> InputError:
    what = library if error.name == library else f"{error.name} (used by {library})"
    return InputError(
        f"this model needs {what}, which is not installed: pip install 'migrator-gpu[{extra}]'"
    )


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
    offered: tuple[type[TorchModel], ...] = import_module("migrator.learn.zoo").MODELS
    return {model.name: model for model in offered}


def model_class(name: str) -> type[Model]:
    """The model called `name`, hf:FOLDER_OR_ID, timm:NAME, or the class at package.module:Class."""
    if name.startswith(LIBRARIES):
        if not name.isprintable():
            raise InputError(f"model: {name[:200]!r} contains unprintable characters; remove them")
        return _library_model(name)
    if ":" in name:
        return require_model(import_class("model", name), name)
    refuse_file("model", name)
    return pick("model", name, models())


@cache
def _library_model(name: str) -> type[TorchModel]:
    """One class per name, whose library is loaded when a model is built."""
    require_torch()
    is_timm = name.startswith("timm:")
    library, function = ("timm_models", "timm_class") if is_timm else ("hf_models", "hf_class")
    find_class = getattr(import_module(f"migrator.learn.{library}"), function)
    library_class: type[TorchModel] = find_class(name)
    return library_class


def encoder(name: str, modality: Modality) -> Encode:
    """How texts become inputs of the model called `name`; packaged models read hashed words."""
    if modality is Modality.TEXT and ":" in name:
        own: Encode = getattr(model_class(name), "encode", all_tokens)
        return own
    return all_tokens


def build(
    name: str,
    classes: int,
    seed: int,
    pixels: int | None = None,
    *,
    input_pixels: int | None = None,
    pretrained: bool = True,
) -> Model:
    """A new model; `pixels` is the side of the images, for models that accept several.

    `input_pixels`: side of the images that it is given and resizes to `pixels`; None: the same.
    Without `pretrained` its weights are random, also where published ones belong to the name.
    """
    model = _new_model(name, classes, seed, pixels)
    if declares_tensors(type(model)):
        model = NamedTensorModel(model)
    if input_pixels is not None:
        if not hasattr(model, "input_pixels"):
            raise InputError(f"live.input_pixels: {name} does not resize images; leave the key out")
        model.input_pixels = input_pixels
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
                f"models need {needed}, which is not installed: pip install 'migrator-gpu[learn]'"
            ) from error


@contextmanager
def naming_method(name: str, method: str) -> Iterator[None]:
    """Turn any exception of a model's method into an InputError that names method and cause."""
    try:
        yield
    except MigratorError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise model_error(name, method, f"failed ({what[:300]})") from error


def model_error(name: str, method: str, what: str) -> InputError:
    """The error for a fault of a model's method."""
    return InputError(
        f"model: {method} of {name} {what}; see 'a model of your own' in docs/learning.md"
    )


def build_model(
    name: str, classes: int, seed: int, pixels: int | None, *, pretrained: bool = True
) -> Model:
    """A new model; InputError unless build() is a class method that returns one."""
    with naming_method(name, "build()"):
        model = build(name, classes, seed, pixels, pretrained=pretrained)
    if not callable(getattr(model, "infer", None)):
        raise model_error(name, "build()", f"returned {_type_name(model)} instead of a model")
    return model


def require_works(name: str, model: Model, samples: Samples, classes: int) -> None:
    """Check that copies of the model can infer, train, save and load. `model` is not changed."""
    rate = model.learning_rate
    if not isinstance(rate, Real) or not 0 < rate < math.inf:
        raise model_error(name, "learning_rate", f"is {rate!r}, not a number above 0")
    few = samples.rows(np.arange(min(_ROWS, len(samples))))
    first, second = _copy(name, model), _copy(name, model)
    with naming_method(name, "example()"):
        example = first.example(2)
    if not isinstance(example, np.ndarray) or len(example) != 2:
        raise model_error(
            name, "example()", f"returned {_type_name(example)} instead of an array of two inputs"
        )
    _require_scores(name, first, few, classes)
    with naming_method(name, "train_step()"):
        loss = first.train_step(few.inputs, few.labels, float(rate))
    with naming_method(name, f"the loss from train_step() ({_type_name(loss)})"):
        float(loss)
    _require_save_and_load(name, first, second)
    _require_scores(name, second, few, classes)


def _copy(name: str, model: Model) -> Model:
    with naming_method(name, "copy.deepcopy()"):
        copied = copy.deepcopy(model)
    if copied is model:
        raise model_error(name, "copy.deepcopy()", "returned the model itself, not a copy")
    return copied


def _require_scores(name: str, model: Model, few: Samples, classes: int) -> None:
    with naming_method(name, "infer()"):
        scores = model.infer(few.inputs)
    shape = (len(few), classes)
    if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "fiu":
        raise model_error(
            name, "infer()", f"returned {_type_name(scores)} instead of an array of numbers"
        )
    if scores.shape != shape:
        raise model_error(name, "infer()", f"returned scores of shape {scores.shape}, not {shape}")


def _require_save_and_load(name: str, first: Model, second: Model) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weights"
        with naming_method(name, "save()"):
            first.save(path, training=True)
        if not path.is_file():
            raise model_error(name, "save()", "did not write the file that it was given")
        with naming_method(name, "load()"):
            second.load(path)


def _type_name(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
