"""Weights in safetensors files.

They are written atomically and read with one InputError for any fault. A file that MIGRator wrote
also holds the model's training state, and during a training the optimiser's moments. Classes that
a model has not seen begin with weights from the mean features of their samples.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.io.atomic_write import write_atomically
from migrator.io.weights_folder import NOTE
from migrator.learn.model import Inputs, Labels, damaged

_MOMENT = "training."
"""Prefix of the optimiser's tensors in a file from which a training can resume."""

Moments = dict[int, dict[str, Tensor]]
"""The optimiser's tensors by the index of their weight."""
_BATCH = 64
"""Samples whose features are computed at a time: as many as in a training step, which needs more
memory."""
_SCORE, _LONGEST = 5.0, 1.0
"""Score of a class at its own mean if no class is known yet, and the longest row that gives it:
features that do not tell the classes apart must not get large weights."""


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
        f"{_MOMENT}{index}.{name}": value
        for index, values in moments.items()
        for name, value in values.items()
    }
    every = {**tensors, **named}
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in every.items()}
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
        for key in [tensor for tensor in tensors if tensor.startswith(_MOMENT)]:
            index, _, name = key.removeprefix(_MOMENT).partition(".")
            moments.setdefault(int(index), {})[name] = tensors.pop(key)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(path) from error
    return Saved(tensors, moments, note)


def _saved_state(raw: Any) -> SavedState:
    steps, seen, weights = raw["steps"], raw["seen"], raw["weights"]
    if type(steps) is not int or not 0 <= steps < 2**53 or type(weights) is not str:
        raise ValueError("state")
    if type(seen) is not list or not all(type(label) is int and label >= 0 for label in seen):
        raise ValueError("seen")
    return SavedState(steps, tuple(seen), weights)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if path.exists() and not (path.is_file() or path.is_dir()):  # its reading may never end
        raise InputError(f"{path}: this is a FIFO, socket or device; give a regular file")
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise InputError(
            f"{path}: holds no .safetensors files; name a folder or file that has the weights"
        )
    tensors: dict[str, Tensor] = {}
    about: dict[str, str] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                about.update(opened.metadata() or {})
                names = opened.keys()
                tensors.update({name: opened.get_tensor(name) for name in names})
        except FileNotFoundError:
            raise InputError(
                f"{file}: no such file; save the model's weights there as safetensors, "
                "or leave --weights out to start from random weights"
            ) from None
        except (OSError, SafetensorError, RuntimeError, ValueError, KeyError) as error:
            raise damaged(file) from error
    return tensors, about


def last_layer(network: nn.Module, prefix: str | tuple[str, ...], classes: int) -> nn.Linear | None:
    """The layer with one row of weights per class; None if the network has none.

    `prefix`: of the names of the layers that depend on the number of classes.
    """
    layers = [
        layer
        for name, layer in network.named_modules()
        if f"{name}.".startswith(prefix)
        and isinstance(layer, nn.Linear)
        and layer.out_features == classes
    ]
    return layers[-1] if layers else None


def features_of(layer: nn.Linear, infer: Callable[[Inputs], object], inputs: Inputs) -> Tensor:
    """The inputs of the layer while the model infers these samples, one row each."""
    kept: list[Tensor] = []

    def keep(_layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        kept.append(given[0].detach().float())

    hook = layer.register_forward_pre_hook(keep)
    try:
        for first in range(0, len(inputs), _BATCH):
            few = inputs[first : first + _BATCH]
            infer(few)
            kept[-1] = kept[-1][: len(few)]  # a model may add rows to fill a batch
    finally:
        hook.remove()
    return torch.cat(kept)


def place_rows(layer: nn.Linear, features: Tensor, labels: Labels, new: Labels) -> None:
    """Point the rows of the classes `new` at the means of their features.

    The rows are as long as those of the known classes among `labels`, if there are any. A sample
    at a new class's mean gets the same score as known classes get at theirs, so that neither has
    an advantage.
    """
    classes = np.unique(labels)
    device = features.device
    means = torch.stack(
        [features[torch.from_numpy(labels == class_).to(device)].mean(0) for class_ in classes]
    )
    centre = means.mean(0)
    index = torch.from_numpy(classes).to(device)
    is_new = torch.from_numpy(np.isin(classes, new)).to(device)
    placed, trained = index[is_new], index[~is_new]
    rows = layer.weight.data
    if len(trained):
        length = rows[trained].float().norm(dim=1).mean()
    else:
        apart = (means - centre).norm(dim=1).mean()
        length = (_SCORE / apart).clamp(max=_LONGEST)
    outwards = nn.functional.normalize(means - centre, dim=1) * length
    if not bool(torch.isfinite(outwards).all()):
        return  # the training fails and says why
    rows[placed] = outwards[is_new].to(rows.dtype)
    if layer.bias is None:
        return
    bias = layer.bias.data
    at_mean = (outwards * means).sum(1)[is_new]
    if len(trained):
        scores = (rows[trained].float() * means[~is_new]).sum(1) + bias[trained].float()
        bias[placed] = (scores.mean() - at_mean).to(bias.dtype)
    else:
        bias[placed] = (-(outwards[is_new] @ centre + at_mean) / 2).to(bias.dtype)
