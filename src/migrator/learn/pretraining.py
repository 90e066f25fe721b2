"""Pre-training on samples without labels, for models that begin with random weights.

A text model learns to guess masked words, an image model by how much a picture was rotated. What
the network learns about words or pictures stays; the layer that guesses is dropped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.learn.benchmarks.benchmark import Encode, Origin
from migrator.learn.benchmarks.folder import PICTURES, read_pictures
from migrator.learn.image_model import ImageModel
from migrator.learn.model import Inputs, Modality, Stream, random_stream
from migrator.learn.registry import benchmark, benchmarks, encoder
from migrator.learn.retraining import DivergedError
from migrator.learn.torch_model import TextModel, TorchModel
from migrator.learn.weights import last_layer

_PIECE_WORDS = 90
"""Longer texts are split, so that all of their words are used."""
_LEAST_SAMPLES = 8
_MASKED, _REPLACED, _KEPT = 0.15, 0.1, 0.1
"""Part of the words to guess; of these, parts that show another word and the word itself."""
_WARM_UP = 0.1
_RATES = {Modality.TEXT: 2e-4, Modality.IMAGES: 1e-3}
_LOSSES = 20
"""Steps over which a loss is averaged."""


@dataclass(frozen=True)
class PretrainingSettings:
    """How a model is pre-trained."""

    epochs: int = 20
    batch: int = 256
    seed: int = 0
    learning_rate: float | None = None
    """The highest one; None: 2e-4 for texts, 1e-3 for images."""
    limit_s: float = math.inf
    """Seconds after which it ends early; the learning rate falls accordingly."""


@dataclass(frozen=True)
class Pretraining:
    """Result of a pre-training."""

    task: str
    samples: int
    steps: int
    first_loss: float
    last_loss: float
    seconds: float


def pretrain(
    model: TorchModel,
    inputs: Inputs,
    settings: PretrainingSettings,
    step_done: Callable[[], None] = lambda: None,
) -> Pretraining:
    """Train the network of `model` on inputs without labels. Its head stays random.

    InputError if there are too few inputs or the network has nothing to pre-train.
    """
    if len(inputs) < _LEAST_SAMPLES:
        raise InputError(f"pretrain: {len(inputs)} samples are too few; give {_LEAST_SAMPLES}")
    torch.manual_seed(settings.seed)
    task = _task_of(model)
    losses: list[float] = []
    began = time.monotonic()
    total = pretraining_steps(len(inputs), settings)
    batch = min(settings.batch, len(inputs))
    highest = settings.learning_rate or _RATES[model.modality]
    weights = list(dict.fromkeys([*model.network.parameters(), *task.parameters()]))
    optimiser = torch.optim.AdamW(weights, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01)
    model.network.train()
    with _without_dropout(model.network):
        for rows in _batches(len(inputs), batch, settings):
            progress = max(len(losses) / total, (time.monotonic() - began) / settings.limit_s)
            if progress >= 1:
                break
            losses.append(_step(model, task, optimiser, inputs[rows], highest * _rate_at(progress)))
            if not math.isfinite(losses[-1]):
                raise DivergedError(
                    f"pretrain: the loss became {losses[-1]}; lower the learning rate"
                )
            step_done()
    model.network.eval()
    few = min(_LOSSES, len(losses))
    return Pretraining(
        task.words,
        len(inputs),
        len(losses),
        float(np.mean(losses[:few])),
        float(np.mean(losses[-few:])),
        time.monotonic() - began,
    )


def pretraining_steps(samples: int, settings: PretrainingSettings) -> int:
    """Steps of all epochs."""
    return settings.epochs * max(1, samples // min(settings.batch, samples))


def unlabelled_inputs(
    source: str, name: str, modality: Modality, data: Path | None, pixels: int | None
) -> tuple[Inputs, str]:
    """Inputs for the model called `name`, and their source in words.

    `source`: a benchmark or folder:PATH, whose labels are ignored; or a text file (one text per
    line, or .jsonl with `text`), or a folder with pictures at any depth.
    """
    encode = encoder(name, modality)
    if source not in benchmarks() and not source.startswith("folder:"):
        path = Path(source).expanduser()
        if modality is Modality.TEXT:
            return _encoded(_texts_of(path), encode), str(path)
        return _pictures_of(path, pixels), str(path)
    known = benchmark(source)
    if known.modality != modality:
        raise InputError(
            f"pretrain: {name} reads {modality}, but {known.name} consists of {known.modality}; "
            "`migrator models` lists what each model reads"
        )
    material = known.load(Origin(data, encode=_as_they_are, pixels=pixels))
    inputs = material.train.inputs
    return (_encoded(inputs, encode) if inputs.dtype == object else inputs), material.source


class _MaskedWords(nn.Module):
    """Guesses hidden words: a layer over the network's last states, and the words' embeddings."""

    words = "masked words"

    def __init__(self, model: TextModel, mask: int) -> None:
        super().__init__()
        network: Any = model.network
        self._base, self._padding, self._mask = network.base_model, model.padding, mask
        self._embedding = network.get_input_embeddings()
        width = self._embedding.embedding_dim
        hidden = int(network.config.hidden_size)
        self.guess = nn.Sequential(nn.Linear(hidden, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(self._embedding.num_embeddings))

    def forward(self, tokens: Tensor) -> Tensor:
        """The loss over a random part of the words."""
        tokens = tokens.to(torch.int64)
        hidden = torch.rand(tokens.shape, device=tokens.device) < _MASKED
        hidden &= (tokens != self._padding) & (tokens != self._mask)
        hidden[:, 0] = False  # the first token is the beginning of the text
        drawn = torch.rand(tokens.shape, device=tokens.device)
        other = torch.randint_like(tokens, self._embedding.num_embeddings)
        shown = torch.where(hidden & (drawn >= _REPLACED + _KEPT), self._mask, tokens)
        shown = torch.where(hidden & (drawn < _REPLACED), other, shown)
        there = (tokens != self._padding).to(torch.int64)
        states = self._base(input_ids=shown, attention_mask=there).last_hidden_state[hidden]
        scores = self.guess(states) @ self._embedding.weight.T + self.bias
        return nn.functional.cross_entropy(scores.float(), tokens[hidden])


class _Rotations(nn.Module):
    """Guesses by how many quarters a picture was turned, from the features of the head."""

    words = "rotations"

    def __init__(self, model: ImageModel, head: nn.Linear) -> None:
        super().__init__()
        self._model, self._head = model, head
        self.guess = nn.Linear(head.in_features, 4)

    def forward(self, pictures: Tensor) -> Tensor:
        """The loss over a random turn of every picture."""
        turns = torch.randint(4, (len(pictures),), device=pictures.device)
        pictures = self._model.augmented(pictures)
        turned = torch.stack(
            [
                torch.rot90(each, int(turn), (1, 2))
                for each, turn in zip(pictures, turns, strict=True)
            ]
        )
        kept: list[Tensor] = []
        hook = self._head.register_forward_pre_hook(lambda _, given: kept.append(given[0]))
        try:
            self._model.logits(turned)
        finally:
            hook.remove()
        return nn.functional.cross_entropy(self.guess(kept[0]).float(), turns)


def _task_of(model: TorchModel) -> Any:
    """What the model learns, on its device; InputError if its network has no place for that."""
    task: nn.Module | None = None
    network: Any = model.network
    if isinstance(model, ImageModel):
        head = last_layer(network, model.head, model.classes)
        task = None if head is None else _Rotations(model, head)
    elif isinstance(model, TextModel) and hasattr(network, "base_model"):
        if model.mask is None:
            raise InputError(
                "pretrain: the model's tokenizer has no mask token; set mask_token and save it"
            )
        task = _MaskedWords(model, model.mask)
    if task is None:
        raise InputError(
            "pretrain: masked words need a text model of transformers (bert-base, hf:), rotations "
            "an image model with one last linear layer; choose another --model"
        )
    return task.to(model.device)


def _step(
    model: TorchModel, task: nn.Module, optimiser: torch.optim.AdamW, inputs: Inputs, rate: float
) -> float:
    for group in optimiser.param_groups:
        group["lr"] = rate
    batch = torch.from_numpy(np.ascontiguousarray(inputs)).to(model.device)
    on_gpu = model.device.type == "cuda"
    with torch.autocast(model.device.type, torch.bfloat16, enabled=on_gpu):
        loss: Tensor = task(batch)
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_([each for g in optimiser.param_groups for each in g["params"]], 1.0)
    optimiser.step()
    return float(loss.detach())


def _rate_at(progress: float) -> float:
    """The learning rate's factor: linear warm-up, then a cosine to 0."""
    return min(progress / _WARM_UP + 1e-3, (1 + math.cos(math.pi * progress)) / 2)


def _batches(samples: int, batch: int, settings: PretrainingSettings) -> Iterator[Any]:
    for epoch in range(settings.epochs):
        order = random_stream(settings.seed, Stream.EPOCH, epoch).permutation(samples)
        for first in range(0, samples - batch + 1, batch):
            yield order[first : first + batch]


@contextmanager
def _without_dropout(network: nn.Module) -> Iterator[None]:
    """Masks are noise enough; with dropout the loss falls much more slowly."""
    layers = [each for each in network.modules() if isinstance(each, nn.Dropout)]
    before = [each.p for each in layers]
    for each in layers:
        each.p = 0.0
    try:
        yield
    finally:
        for each, part in zip(layers, before, strict=True):
            each.p = part


def _as_they_are(texts: Iterable[str]) -> Any:
    return np.array(list(texts), dtype=object)


def _encoded(texts: Iterable[str], encode: Encode) -> Inputs:
    """Token numbers of all pieces of the texts."""
    pieces = [
        " ".join(words[first : first + _PIECE_WORDS])
        for words in map(str.split, texts)
        for first in range(0, len(words), _PIECE_WORDS)
    ]
    if not pieces:
        raise InputError("pretrain: there are no texts; give a file with some")
    return encode(pieces)


def _texts_of(path: Path) -> Iterator[str]:
    """The texts of a file."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _text_in(line, path, number) if path.suffix == ".jsonl" else line
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"pretrain: {path} is neither a benchmark nor a readable text file in UTF-8; give "
            "folder:PATH, a file with one text per line, or .jsonl with `text`"
        ) from error


def _text_in(line: str, path: Path, number: int) -> str:
    try:
        return str(json.loads(line)["text"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}, line {number}: not an object with `text`; correct it") from error


def _pictures_of(path: Path, pixels: int | None) -> Inputs:
    """All pictures below a folder, in one size."""
    if not path.is_dir():
        raise InputError(
            f"pretrain: {path} is neither a benchmark nor a folder of pictures; "
            "`migrator benchmarks` lists the benchmarks"
        )
    found = sorted(each for each in path.rglob("*") if each.suffix.lower() in PICTURES)
    if not found:
        raise InputError(f"pretrain: {path} has no pictures; name a folder that has some")
    return read_pictures(found, pixels)
