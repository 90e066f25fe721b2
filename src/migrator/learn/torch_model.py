"""Models on torch: everything but the network, so that an entry of the zoo is a few lines."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.learn.captured import CapturedSteps
from migrator.learn.model import Inputs, Labels, Modality, Scores
from migrator.learn.weights import read_tensors, write_tensors

_WEIGHT_DECAY = 0.01
_LONGEST_GRADIENT = 1.0
_MOMENT = "training."
"""Before the names of the optimiser's tensors in a file that a training can go on from."""


class TorchModel(ABC):
    """A classifier around a network. Mixed precision (bf16) on CUDA, single precision on a CPU."""

    name: ClassVar[str]
    summary: ClassVar[str]
    modality: Modality
    learning_rate: float
    head: ClassVar[str] = "classifier"
    """Names of the tensors that depend on the number of classes begin with this."""

    def __init__(self, network: nn.Module, classes: int, seed: int) -> None:
        self.network, self.classes, self.seed = network, classes, seed
        self.device = torch.device("cpu")
        self.weights = f"random, seed {seed}"
        self.steps = 0
        self.seen = np.zeros(classes, dtype=bool)
        """Classes trained on so far: only these are answered, and only these are told apart."""
        self._optimiser: torch.optim.AdamW | None = None
        self._captured: CapturedSteps | None = None
        self._unseen = torch.ones(classes, dtype=torch.bool)

    @abstractmethod
    def logits(self, inputs: Tensor) -> Tensor:
        """Scores of a batch that is on the device already; differentiable."""

    @abstractmethod
    def example(self, batch: int) -> Inputs:
        """A batch of inputs of the size it is meant for."""

    @classmethod
    @abstractmethod
    def build(cls, classes: int, seed: int) -> Self:
        """A new model with random weights from the seed."""

    def varied(self, inputs: Tensor) -> Tensor:
        """What is trained on in place of these inputs; random numbers may be drawn."""
        return inputs

    def to(self, device: str) -> None:
        """Move to "cpu" or "cuda"; a training begun elsewhere is forgotten."""
        self.device = torch.device(device)
        self.network.to(self.device)
        self._unseen = self._unseen.to(self.device)
        self._optimiser = self._captured = None

    def infer(self, inputs: Inputs) -> Scores:
        """One row of scores per input."""
        self.network.eval()
        with self._within_memory(), torch.inference_mode(), self._precision():
            said: Scores = self.logits(self._there(inputs)).float().cpu().numpy()
        if self.seen.any():
            said[:, ~self.seen] = -np.inf
        return said

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        """One step of AdamW on the batch; the same steps from the same weights give the same."""
        self.network.train()
        optimiser = self._optimiser or self._begun()
        for group in optimiser.param_groups:
            _set_rate(group, lr)
        self.seen[labels] = True
        self._unseen.copy_(torch.from_numpy(~self.seen))
        wanted = torch.from_numpy(labels).to(self.device)
        with self._within_memory(), _drawing_from(self.seed * 1_000_003 + self.steps):
            batch = self.varied(self._there(inputs))
            step = self._learned if self._captured is None else self._captured.run
            loss = step(batch, wanted)
        self.steps += 1
        return float(loss)

    def save(self, path: Path, *, training: bool = False) -> None:
        """Write the weights as safetensors; with `training` the optimiser's moments too."""
        tensors = dict(self.network.state_dict())
        if training and self._optimiser is not None:
            tensors.update(_moments(self._optimiser))
        seen = np.flatnonzero(self.seen).tolist()
        about = {"steps": self.steps, "seen": seen, "weights": self.weights}
        write_tensors(tensors, path, {"migrator": json.dumps(about)})

    def load(self, path: Path) -> None:
        """Weights from a file or a folder of safetensors; those of another head are left out."""
        tensors, about = read_tensors(path)
        moments = {k: tensors.pop(k) for k in list(tensors) if k.startswith(_MOMENT)}
        left = self._fitted(tensors, path)
        self._optimiser = self._captured = None
        if "migrator" in about:
            said = json.loads(about["migrator"])
            self.steps, self.weights = int(said["steps"]), str(said["weights"])
            self.seen[:] = np.isin(np.arange(self.classes), said["seen"])
        else:
            self.weights = f"loaded from {path.name}" + (", head random" if left else "")
        if moments:
            _restore(self._begun(), moments)

    def __getstate__(self) -> dict[str, Any]:
        """For copies: the optimiser is not copied, so a copy begins its training anew."""
        return {**self.__dict__, "_optimiser": None, "_captured": None}

    def _fitted(self, tensors: Mapping[str, Tensor], path: Path) -> list[str]:
        """Take over the tensors; the names in the head that did not fit."""
        own = self.network.state_dict()
        prefix = getattr(self.network, "base_model_prefix", "")
        if prefix and not any(name in own for name in tensors):
            tensors = {f"{prefix}.{name}": each for name, each in tensors.items()}
        left = [k for k in own if k not in tensors or tensors[k].shape != own[k].shape]
        # counters of batches are in no file made elsewhere, and nothing depends on them
        wrong = [k for k in left if not k.startswith(self.head) and "num_batches" not in k]
        if wrong:
            raise InputError(
                f"{path}: its weights do not fit {type(self).__name__} ({len(wrong)} tensors, such "
                f"as {wrong[0]}, are missing or of another shape); name a file of this model"
            )
        self.network.load_state_dict({k: tensors[k] for k in own if k not in left}, strict=False)
        return [k for k in left if k.startswith(self.head)]

    def _begun(self) -> torch.optim.AdamW:
        on_gpu = self.device.type == "cuda"
        self._optimiser = torch.optim.AdamW(
            self.network.parameters(),
            # a tensor, so that a captured step reads the rate of the moment
            lr=torch.zeros((), device=self.device) if on_gpu else 0.0,
            weight_decay=_WEIGHT_DECAY,
            fused=True,
            capturable=on_gpu,
        )
        self._captured = CapturedSteps(self._learned) if on_gpu else None
        return self._optimiser

    def _learned(self, batch: Tensor, wanted: Tensor) -> Tensor:
        """A step on what is on the device already; the loss."""
        assert self._optimiser is not None
        self._optimiser.zero_grad(set_to_none=True)
        with self._precision():
            said = self.logits(batch)
        # what is still to come must not be learned to be wrong
        said = said.float().masked_fill(self._unseen, -1e9)
        loss = nn.functional.cross_entropy(said, wanted)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.network.parameters(), _LONGEST_GRADIENT)
        self._optimiser.step()
        return loss.detach()

    def _there(self, inputs: Inputs) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device, non_blocking=True)

    @contextmanager
    def _within_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"{type(self).__name__} does not fit the memory of {self.device}; give a smaller "
                "batch or a larger instance"
            ) from error

    def _precision(self) -> torch.autocast:
        on_gpu = self.device.type == "cuda"
        # weights cast for one replay of a graph must not be taken for those of the next
        return torch.autocast(self.device.type, torch.bfloat16, on_gpu, cache_enabled=False)


def _set_rate(group: dict[str, Any], lr: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


@contextmanager
def _drawing_from(seed: int) -> Iterator[None]:
    """Random numbers of this seed inside; outside nobody notices."""
    before = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)


@contextmanager
def initialised_from(seed: int) -> Iterator[None]:
    """Random weights of this seed inside; outside nobody notices."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _moments(optimiser: torch.optim.AdamW) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {
        f"{_MOMENT}{index}.{name}": value
        for index, values in state.items()
        for name, value in values.items()
    }


def _restore(optimiser: torch.optim.AdamW, moments: Mapping[str, Tensor]) -> None:
    weights = [each for group in optimiser.param_groups for each in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in moments.items():
        index, _, name = key.removeprefix(_MOMENT).partition(".")
        there = weights[int(index)]
        # in the order of memory of its weight, which a fused optimiser relies on
        like = torch.empty_like(there) if value.shape == there.shape else value.to(there.device)
        state.setdefault(int(index), {})[name] = like.copy_(value)
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
