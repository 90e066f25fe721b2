"""A trained Informer: how it forecasts, and the file that it is saved in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.forecaster import Counts, Origins, PointForecaster
from migrator.forecast.informer.network import Informer, Shape
from migrator.forecast.simple import constant, last_window_mean
from migrator.io.atomic_write import write_atomically

VERSION = 4
"""Of the network and of what the file holds."""
_HEADER = "header"
_NOTHING = 1e-6
"""Requests per slot: fewer are none."""


def data_hash(history: Counts) -> str:
    """A hash that identifies a history."""
    return hashlib.sha256(np.ascontiguousarray(history, dtype="<f8").tobytes()).hexdigest()


@dataclass(frozen=True)
class Summary:
    """How training went; errors are of the validation parts, which lie after the training parts."""

    slots: int
    """Length of the histories, one after the other."""
    training_examples: int
    validation_examples: int
    best_step: int
    wape_last_mean: float
    wape: float


@dataclass(frozen=True, eq=False)
class TrainedInformer(PointForecaster):
    """A network and what is needed to use it."""

    uses_full_history = True

    network: Informer
    slot_s: float
    data_hash: str
    """Of the histories, one after the other."""
    summary: Summary

    @property
    def shape(self) -> Shape:
        """Of its network."""
        return self.network.shape

    def points(
        self, history: Counts, origins: Origins, slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """Per origin the network's forecast; the last window's mean where the network has none.

        That is before `shape.lookback` slots are known, and beyond `shape.ahead` slots.
        """
        points = constant(last_window_mean(history, origins, window_slots), slots)
        able = np.flatnonzero(origins >= self.shape.lookback)
        if len(able) == 0:
            return points
        past = history[origins[able, None] - self.shape.lookback + np.arange(self.shape.lookback)]
        level, scale = past.mean(axis=1, keepdims=True), scales(history)[origins[able], None]
        answered = answer(self.network, ((past - level) / scale).astype(np.float32))
        covered = min(slots, self.shape.ahead)
        points[able, :covered] = np.maximum(level + scale * answered[:, :covered], 0.0)
        return points


def scales(history: Counts) -> NDArray[np.float64]:
    """Before every slot, and at the end, the standard deviation so far, by which the network's
    input is divided; at least that of as many requests coming by chance."""
    number = np.maximum(np.arange(len(history) + 1), 1)
    mean = np.concatenate(([0.0], np.cumsum(history))) / number
    square = np.concatenate(([0.0], np.cumsum(history**2))) / number
    spread: NDArray[np.float64] = np.sqrt(np.maximum(square - mean**2, np.maximum(mean, _NOTHING)))
    return spread


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: products this small gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def answer(network: Informer, past: NDArray[np.float32]) -> NDArray[np.float64]:
    """The network's output for every row."""
    network.eval()
    with one_thread(), torch.inference_mode():
        answers: NDArray[np.float64] = network(torch.from_numpy(past)).numpy().astype(np.float64)
    return answers


def save(model: TrainedInformer, path: Path) -> None:
    """Write the weights and what they belong to as `.npz`; a failure leaves no file that looks
    whole."""
    header = {
        "version": VERSION,
        "shape": asdict(model.shape),
        "slot_s": model.slot_s,
        "input": "slots less their mean, over the standard deviation of all slots so far",
        "data_hash": model.data_hash,
        "summary": asdict(model.summary),
    }
    arrays = {name: tensor.cpu().numpy() for name, tensor in model.network.state_dict().items()}
    with write_atomically(path) as draft, draft.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.array(json.dumps(header))}, **arrays)


def load(path: Path) -> TrainedInformer:
    """The model in a file; InputError where it is none, of another version, or damaged."""
    header, weights = _content(path)
    if header.get("version") != VERSION:
        raise InputError(
            f"{path}: is of version {header.get('version')}, and this release reads {VERSION}; "
            "train it again"
        )
    try:
        network = Informer(Shape(**header["shape"]))
        network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        network.eval()
        summary = Summary(**header["summary"])
        return TrainedInformer(network, float(header["slot_s"]), str(header["data_hash"]), summary)
    except (KeyError, TypeError, ValueError, RuntimeError, InputError) as error:
        raise InputError(
            f"{path}: its weights do not fit its header; train the model again"
        ) from error


def _content(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and weights."""
    try:
        with path.open("rb") as file:
            weights = dict(np.load(file, allow_pickle=False))
        header: dict[str, Any] = json.loads(str(weights.pop(_HEADER)))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); name a file that "
            "`migrator forecast train` wrote"
        ) from error
    except Exception as error:  # whatever numpy and zipfile raise for bytes like these
        raise InputError(
            f"{path}: is no saved model, or damaged; copy it again, or name a file that `migrator "
            "forecast train` wrote"
        ) from error
    return header, weights
