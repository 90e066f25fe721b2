"""Weights in safetensors files: written atomically, read with one InputError for any fault.

A file that MIGRator wrote also holds the model's training state, and during a training the
optimiser's moments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from migrator.core.errors import InputError
from migrator.io.atomic import write_atomically
from migrator.io.weights_folder import NOTE

_MOMENT = "training."
"""Prefix of the optimiser's tensors in a file from which a training can resume."""

Moments = dict[int, dict[str, Tensor]]
"""The optimiser's tensors by the index of their weight."""


@dataclass(frozen=True)
class SavedState:
    """Training state of a saved model."""

    steps: int
    seen: tuple[int, ...]
    """Classes trained on."""
    weights: str
    """The origin of the weights, in words."""


@dataclass(frozen=True, eq=False)
class Saved:
    """The contents of a weights file."""

    tensors: dict[str, Tensor]
    moments: Moments
    note: SavedState | None
    """None: not written by MIGRator."""


def write_weights(
    tensors: Mapping[str, Tensor], moments: Moments, note: SavedState, path: Path
) -> None:
    """Write tensors, moments and training state into one file."""
    named = {
        f"{_MOMENT}{index}.{name}": each
        for index, values in moments.items()
        for name, each in values.items()
    }
    every = {**tensors, **named}
    plain = {name: each.detach().cpu().contiguous().clone() for name, each in every.items()}
    with write_atomically(path) as unfinished:
        try:
            save_file(plain, unfinished, {NOTE: json.dumps(asdict(note))})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def read_weights(path: Path) -> Saved:
    """Everything in a file, or in all safetensors files of a folder."""
    tensors, about = _read(path)
    try:
        note = _saved_state(json.loads(about[NOTE])) if NOTE in about else None
        moments: Moments = {}
        for key in [each for each in tensors if each.startswith(_MOMENT)]:
            index, _, name = key.removeprefix(_MOMENT).partition(".")
            moments.setdefault(int(index), {})[name] = tensors.pop(key)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(path) from error
    return Saved(tensors, moments, note)


def damaged(path: Path) -> InputError:
    """The error for a file that cannot be read as weights."""
    return InputError(
        f"{path}: damaged or not a safetensors file; copy it again or name another file"
    )


def _saved_state(raw: Any) -> SavedState:
    steps, seen, weights = raw["steps"], raw["seen"], raw["weights"]
    if type(steps) is not int or not 0 <= steps < 2**53 or type(weights) is not str:
        raise ValueError("state")
    if type(seen) is not list or not all(type(each) is int and each >= 0 for each in seen):
        raise ValueError("seen")
    return SavedState(steps, tuple(seen), weights)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise InputError(
            f"{path}: holds no .safetensors files; name a folder or file that has the weights"
        )
    tensors: dict[str, Tensor] = {}
    about: dict[str, str] = {}
    for each in files:
        try:
            with safe_open(each, framework="pt") as opened:
                about.update(opened.metadata() or {})
                names = opened.keys()
                tensors.update({name: opened.get_tensor(name) for name in names})
        except FileNotFoundError:
            raise InputError(
                f"{each}: no such file; save the model's weights there as safetensors, "
                "or leave --weights out to start from random weights"
            ) from None
        except (OSError, SafetensorError, RuntimeError, ValueError, KeyError) as error:
            raise damaged(each) from error
    return tensors, about
