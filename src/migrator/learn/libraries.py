"""Optional libraries, imported when a model needs them; InputError names the extra to install."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from migrator.core.errors import InputError


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
        raise InputError(
            f"torchvision does not fit torch {torch.__version__} ({error}); install the "
            "torchvision that belongs to it"
        ) from error


_LIBRARY: Any = torch.library.Library
_defined: list[Any] = []
"""Operators vanish with the object that defined them."""


def _define_operators() -> None:
    library = _LIBRARY("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _defined.append(library)


def _missing(library: str, extra: str, error: ModuleNotFoundError) -> InputError:
    what = library if error.name == library else f"{error.name} (used by {library})"
    return InputError(
        f"this model needs {what}, which is not installed: pip install 'migrator[{extra}]'"
    )
