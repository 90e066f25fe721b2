"""The interface of a model, built in or a user's own, its inputs, and the samples it learns from.

Inputs, labels and scores are numpy arrays, so that callers do not need torch. Texts are token
numbers: the packaged models read words hashed into a fixed vocabulary; a folder of Hugging Face has
its tokenizer in `tokenizer.json`, which the library `tokenizers` reads alone.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError

Inputs = NDArray[Any]
"""A batch: images as uint8 (n, 3, side, side), or texts as int32 token numbers (n, length)."""
Labels = NDArray[np.int64]
Scores = NDArray[np.float32]


class Modality(StrEnum):
    """The kind of input of a model."""

    IMAGES = "images"
    TEXT = "text"


class Model(Protocol):
    """A classifier that can be served and retrained.

    `copy.deepcopy` must return an independent model whose training starts afresh. Optional:

    - `load_pretrained()`: load the weights that the model's name stands for; not called where
      other weights follow, or where any will do, as when profiling
    - `input_pixels`: the side of the images it is given, if it resizes them; may be set
    - `weights`: the origin of the weights, in words
    - `begin_with(path)`: load the weights only, not the training state
    - `begin_training(inputs, labels, counts)`: called before the first epoch and after a resume
      with some samples of every class and the number of training samples per class. The model
      corrects for these frequencies: epochs then show every sample once instead of every class
      equally often
    - `expect_training(steps)`: called before a training of that many steps, and before the
      evaluations that come with it, to prepare for it
    - `end_training()`: free what only training needs
    - `begin_serving(batch)`: called once if only batches of up to `batch` inputs follow
    - `exchange(other)`: exchange the weights with another model of this class between two batches,
      or return False to be replaced by it
    - `kept_bytes`: approximate size of a checkpoint of its training
    """

    modality: Modality
    learning_rate: float
    """The highest rate of a training, reached after a warm-up and then lowered."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        """A new model with random weights from the seed."""

    def to(self, device: str) -> None:
        """Move to "cpu" or "cuda"."""

    def example(self, batch: int) -> Inputs:
        """A batch of inputs of the model's own size."""

    def infer(self, inputs: Inputs) -> Scores:
        """One row of scores per input, one column per class."""

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        """Train on one batch at this rate and return the loss."""

    def save(self, path: Path, *, training: bool = False) -> None:
        """Write the weights; with `training` also what resuming a training needs."""

    def load(self, path: Path) -> None:
        """Load what `save` wrote; InputError if it does not fit."""


METHODS = ("build", "to", "example", "infer", "train_step", "save", "load")
ATTRIBUTES = ("modality", "learning_rate")


def require_model(candidate: object, name: str) -> type[Model]:
    """The class itself if it is complete; otherwise an InputError that lists what is missing."""
    if not isinstance(candidate, type):
        raise InputError(f"model: {name} is not a class; name a class with the methods of a model")
    missing = [
        f"{method}()" for method in METHODS if not callable(getattr(candidate, method, None))
    ]
    missing += [attribute for attribute in ATTRIBUTES if not hasattr(candidate, attribute)]
    if missing:
        raise InputError(
            f"model: {name} lacks {', '.join(missing)}; see 'a model of your own' in "
            "docs/learning.md"
        )
    return candidate


class NoSamplesError(InputError):
    """There are no samples to train on, or none to evaluate with."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and labels; row i of each belongs to sample i."""

    inputs: Inputs
    labels: Labels
    arrives: NDArray[np.int64]
    """The scenario in which each sample arrives; 0 is pre-training."""

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> Samples:
        """The samples selected by row numbers or a mask."""
        return Samples(self.inputs[chosen], self.labels[chosen], self.arrives[chosen])

    def at_most(self, per_class: int, draw: np.random.Generator) -> Samples:
        """At most `per_class` samples of every class, drawn at random."""
        return self._draw(lambda _count: per_class, draw)

    def share(self, part: float, draw: np.random.Generator) -> Samples:
        """A fraction of every class, at least one sample of each, drawn at random."""
        return self._draw(lambda count: max(1, round(part * count)), draw)

    def _draw(self, kept_of: Callable[[int], int], draw: np.random.Generator) -> Samples:
        kept = [np.empty(0, np.intp)]
        for label in np.unique(self.labels):
            rows = draw.permutation(np.flatnonzero(self.labels == label))
            kept.append(rows[: kept_of(len(rows))])
        return self.rows(np.sort(np.concatenate(kept)))


_VALIDATION, _MOST_VALIDATION, _LEAST_SPLIT = 1 / 4, 50, 4
"""Part of a class's held-out samples that chooses the epoch, its limit, and the fewest samples
that are split: fewer serve both purposes."""


def split_validation(held_out: Samples, seed: int) -> tuple[Samples, Samples]:
    """The held-out samples in two: for the accuracies, and for choosing the best epoch."""
    draw = random_stream(seed, Stream.VALIDATION)
    reported = np.ones(len(held_out), bool)
    validation = np.zeros(len(held_out), bool)
    for label in np.unique(held_out.labels):
        rows = draw.permutation(np.flatnonzero(held_out.labels == label))
        split = len(rows) >= _LEAST_SPLIT
        chosen = rows[: min(_MOST_VALIDATION, int(len(rows) * _VALIDATION))] if split else rows
        validation[chosen] = True
        reported[chosen] = not split
    return held_out.rows(reported), held_out.rows(validation)


def concatenate(parts: Sequence[Samples]) -> Samples:
    """The samples of all parts, in their order."""
    return Samples(
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.arrives for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class WindowData:
    """What one retraining is trained and evaluated on."""

    new: Samples
    """The window's own samples."""
    replay: Samples
    """Samples of earlier windows, a bounded number per class."""
    held_out: Samples
    """Samples of all classes seen so far, for the accuracies; never trained on."""
    validation: Samples
    """Further ones, which decide the best epoch; never trained on."""
    new_classes: frozenset[int]

    @property
    def training(self) -> Samples:
        """All training samples."""
        return concatenate((self.new, self.replay))

    @property
    def held_out_new(self) -> Samples:
        """Held-out samples of the window's new classes."""
        return self.held_out.rows(np.isin(self.held_out.labels, list(self.new_classes)))


class Stream(IntEnum):
    """Purposes of random numbers. Changing a value changes every result that depends on it."""

    SAMPLES_LIMITED = 1
    ORDER_OF_CLASSES = 2
    MEMORY = 3
    MADE_UP_PICTURES = 4
    EPOCH = 5
    ESTIMATION = 6
    VALIDATION = 7
    FEATURES = 8
    HELD_OUT = 9


def random_stream(seed: int, stream: Stream, *more: int) -> np.random.Generator:
    """The generator of this seed and purpose; `more` distinguishes parts, such as epochs."""
    return np.random.default_rng((seed, stream.value, *more))


def damaged(path: Path) -> InputError:
    """The error for a file that cannot be read as weights."""
    return InputError(
        f"{path}: damaged or not a safetensors file; copy it again or name another file"
    )


VOCABULARY = 30_522
"""The size of BERT-base's vocabulary."""
TOKENS = 128
CHARACTERS = 512
"""Characters of a text that are read per token: the rest of a very long text is not looked at."""
PADDING, BEGIN = 0, 1
"""Token that fills up short texts; first token of every text."""

_WORD = re.compile(r"[^\W\d_]+|\d+")
_PIECE = re.compile(r"\S{1,256}")
"""What is normalized at a time: a run of combining marks takes quadratic time."""


def tokens_of(text: str, length: int = TOKENS) -> NDArray[np.int32]:
    """The first words of a text as token numbers; a word always has the same number."""
    words = list(islice(_words(text[: CHARACTERS * length]), length - 1))
    numbers = [2 + zlib.crc32(word.encode()) % (VOCABULARY - 2) for word in words]
    return np.array([BEGIN, *numbers] + [PADDING] * (length - 1 - len(words)), dtype=np.int32)


def _words(text: str) -> Iterator[str]:
    for piece in _PIECE.finditer(text):
        yield from _WORD.findall(unicodedata.normalize("NFKC", piece[0]).casefold())


def all_tokens(texts: Iterable[str], length: int = TOKENS) -> NDArray[np.int32]:
    """One row per text."""
    return np.stack([tokens_of(text, length) for text in texts])


HASHED = "hashed words"
"""In place of a tokenizer's path: the words of `tokens_of`."""

TextEncoder = Callable[[list[str]], NDArray[np.int32]]
"""One row of token numbers per text."""


def text_encoder(tokenizer: str, length: int, padding: int) -> TextEncoder:
    """The encoder of `HASHED` words, or of the tokenizer.json at that path, for rows of `length`.

    `padding`: the token that fills up short texts.
    """
    if tokenizer == HASHED:
        return lambda texts: all_tokens(texts, length)
    library: Any = import_module("tokenizers")  # part of transformers, which built the model
    try:
        read = library.Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises nothing more precise
        raise InputError(
            f"{tokenizer}: no tokenizer can be read there ({error}); save it again"
        ) from error
    read.enable_truncation(length)
    read.enable_padding(length=length, pad_id=padding)

    def encode(texts: list[str]) -> NDArray[np.int32]:
        begins = [text[: CHARACTERS * length] for text in texts]
        rows = [each.ids for each in read.encode_batch(begins)]
        return np.array(rows, np.int32).reshape(len(texts), length)

    return encode


def tokenizer_of(model: type) -> str | None:
    """What `text_encoder` needs to encode for a text model of that class; None: it cannot."""
    if not hasattr(model, "encode"):
        return HASHED
    folder = getattr(getattr(model, "folder", None), "path", None)
    file = None if folder is None else Path(folder) / "tokenizer.json"
    return str(file.absolute()) if file is not None and file.is_file() else None
