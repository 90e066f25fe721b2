"""Tensors in safetensors files: written whole or not at all, read with one sentence for a fault.

A file of ours carries a note of where its model stood, and amid a training the optimiser's moments.
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
from migrator.learn.atomic import written_whole

_NOTE = "migrator"
_MOMENT = "training."
"""Before the names of the optimiser's tensors in a file that a training can go on from."""

Moments = dict[int, dict[str, Tensor]]
"""Of an optimiser, by the number of the weight they belong to."""


@dataclass(frozen=True)
class Note:
    """Where a model stood when it was saved."""

    steps: int
    seen: tuple[int, ...]
    """Classes trained on."""
    weights: str
    """Where the weights had come from, in words."""


@dataclass(frozen=True, eq=False)
class Saved:
    """What a file of weights holds."""

    tensors: dict[str, Tensor]
    moments: Moments
    note: Note | None
    """None: somebody else wrote it."""


def write_weights(tensors: Mapping[str, Tensor], moments: Moments, note: Note, path: Path) -> None:
    """Write all of it into one file."""
    named = {
        f"{_MOMENT}{index}.{name}": each
        for index, values in moments.items()
        for name, each in values.items()
    }
    every = {**tensors, **named}
    plain = {name: each.detach().cpu().contiguous().clone() for name, each in every.items()}
    with written_whole(path) as unfinished:
        try:
            save_file(plain, unfinished, {_NOTE: json.dumps(asdict(note))})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def read_weights(path: Path) -> Saved:
    """Everything in a file, or in all safetensors files of a folder."""
    tensors, about = _read(path)
    try:
        note = _note(json.loads(about[_NOTE])) if _NOTE in about else None
        moments: Moments = {}
        for key in [each for each in tensors if each.startswith(_MOMENT)]:
            index, _, name = key.removeprefix(_MOMENT).partition(".")
            moments.setdefault(int(index), {})[name] = tensors.pop(key)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(path) from error
    return Saved(tensors, moments, note)


def damaged(path: Path) -> InputError:
    """One sentence for a file that is not what it should be."""
    return InputError(f"{path}: is damaged or no safetensors file; copy it again or name another")


def _note(said: Any) -> Note:
    steps, seen, weights = said["steps"], said["seen"], said["weights"]
    if type(steps) is not int or not 0 <= steps < 2**53 or type(weights) is not str:
        raise ValueError("note")
    if type(seen) is not list or not all(type(each) is int and each >= 0 for each in seen):
        raise ValueError("seen")
    return Note(steps, tuple(seen), weights)


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
                f"{each}: there is no such file; save the model's weights there as safetensors, "
                "or leave --weights out to begin at random"
            ) from None
        except (OSError, SafetensorError, RuntimeError, ValueError, KeyError) as error:
            raise damaged(each) from error
    return tensors, about
