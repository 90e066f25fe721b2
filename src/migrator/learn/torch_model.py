"""Models on torch: everything but the network, so that an entry of the zoo is a few lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.learn.captured import CapturedSteps
from migrator.learn.captured_answers import CapturedAnswers, halve
from migrator.learn.model import Inputs, Labels, Modality, Scores
from migrator.learn.weights import Moments, Note, Saved, damaged, read_weights, write_weights

_CUDA: Any = torch.cuda
_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
"""What AdamW remembers of every weight."""
_WEIGHT_DECAY = 0.01
_LONGEST_GRADIENT = 1.0


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
        self._answers: CapturedAnswers | None = None
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
        self._optimiser = self._captured = self._answers = None

    @property
    def kept_bytes(self) -> int:
        """About what a checkpoint of its training takes: every weight and its two moments."""
        return 3 * sum(each.numel() * each.element_size() for each in self.network.parameters())

    def infer(self, inputs: Inputs) -> Scores:
        """One row of scores per input."""
        self.network.eval()
        with self._within_memory(), torch.inference_mode(), self._precision():
            said: Scores = self._answered(inputs).float().cpu().numpy()
        if self.seen.any():
            said[:, ~self.seen] = -np.inf
        return said

    def begin_serving(self, batch: int) -> None:
        """Answer batches of up to so many as fast as it can; on a GPU it learns no more then.

        Weights in bf16 and answers captured as CUDA graphs, which is how profiles measure it.
        """
        if self.device.type != "cuda":
            return
        self.network.eval()
        self.network.requires_grad_(False)
        halve(self.network)
        example = self._there(self.example(1))
        with self._within_memory(), torch.inference_mode(False), torch.no_grad():
            try:
                self._answers = CapturedAnswers(self.logits, example, batch)
            except RuntimeError:
                self._answers = None  # a network that asks the host answers as it is

    def take_over(self, other: Self) -> bool:
        """Answer with another one's weights, in the same memory; False: be replaced instead."""
        if self._answers is None:
            return False
        theirs = other.network.state_dict()
        with torch.no_grad():
            for name, own in self.network.state_dict().items():
                own.copy_(theirs[name])
        self.seen, self.weights, self.steps = other.seen.copy(), other.weights, other.steps
        _CUDA.synchronize()
        return True

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        """One step of AdamW on the batch; the same steps from the same weights give the same."""
        self.network.train()
        optimiser = self._optimiser or self._begun()
        for group in optimiser.param_groups:
            _set_rate(group, lr)
        self.seen[labels] = True
        self._unseen.copy_(torch.from_numpy(~self.seen))
        wanted = torch.from_numpy(labels).to(self.device)
        seed = self.seed * 1_000_003 + self.steps
        with self._within_memory(), _drawing_from(seed, self.device):
            batch = self.varied(self._there(inputs))
            if self._captured is None:
                loss = self._learned(batch, wanted)
            else:
                loss = self._captured.run(self._learned, batch, wanted)
        self.steps += 1
        return float(loss)

    def save(self, path: Path, *, training: bool = False) -> None:
        """Write the weights as safetensors; with `training` the optimiser's moments too."""
        moments: Moments = {}
        if training and self._optimiser is not None:
            moments = self._optimiser.state_dict()["state"]
        seen = tuple(int(each) for each in np.flatnonzero(self.seen))
        note = Note(self.steps, seen, self.weights)
        write_weights(self.network.state_dict(), moments, note, path)

    def load(self, path: Path) -> None:
        """Go on from what `save` wrote; of a file made elsewhere or for other classes, begin."""
        saved = read_weights(path)
        moments = self._fitting_moments(saved, path)
        left = self._taken(saved, path)
        if saved.note is None or left:
            return
        self.steps, self.weights = saved.note.steps, saved.note.weights
        if moments:
            self._restore(self._begun(), moments)

    def begin_with(self, path: Path) -> None:
        """Only the weights of a file or a folder of safetensors; a head that does not fit stays."""
        self._taken(read_weights(path), path)

    def end_training(self) -> None:
        """Forget what only a training needs: moments, gradients, captured steps."""
        self._optimiser = self._captured = None
        self.network.zero_grad(set_to_none=True)

    def __getstate__(self) -> dict[str, Any]:
        """For copies: the optimiser is not copied, so a copy begins its training anew."""
        return {**self.__dict__, "_optimiser": None, "_captured": None, "_answers": None}

    def unfitting(self, names: list[str]) -> str:
        """What to do about weights of which these tensors do not fit, in words."""
        return (
            f"its weights do not fit {type(self).__name__} ({len(names)} tensors, such as "
            f"{names[0]}, are missing or of another shape); name a file of this model"
        )

    def _taken(self, saved: Saved, path: Path) -> list[str]:
        """Begin with these weights; the names in the head that did not fit."""
        left = self._fitted(saved.tensors, path)
        self._optimiser = self._captured = None
        self.steps = 0
        self.weights = f"loaded from {path.name}" + (", head random" if left else "")
        # classes of another head are other classes; who wrote elsewhere does not say
        seen = () if saved.note is None or left else saved.note.seen
        self.seen[:] = np.isin(np.arange(self.classes), seen)
        return left

    def _fitted(self, tensors: Mapping[str, Tensor], path: Path) -> list[str]:
        """Take over the tensors; the names in the head that did not fit."""
        own = self.network.state_dict()
        prefix = getattr(self.network, "base_model_prefix", "")
        if prefix and not any(name in own for name in tensors):
            tensors = {f"{prefix}.{name}": each for name, each in tensors.items()}
        left = [k for k in own if k not in tensors or tensors[k].shape != own[k].shape]
        taken = [k for k in own if k not in left]
        # counters of batches are in no file made elsewhere, and nothing depends on them
        wrong = [k for k in left if not k.startswith(self.head) and "num_batches" not in k]
        if wrong:
            raise InputError(f"{path}: {self.unfitting(wrong)}")
        if any(tensors[k].is_floating_point() != own[k].is_floating_point() for k in taken):
            raise damaged(path)
        self.network.load_state_dict({k: tensors[k] for k in taken}, strict=False)
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
        self._captured = CapturedSteps() if on_gpu else None
        return self._optimiser

    def _fitting_moments(self, saved: Saved, path: Path) -> Moments:
        """The moments of a training, if each belongs to a weight beside it in the file."""
        names = [name for name, _ in self.network.named_parameters()]
        for index, named in saved.moments.items():
            weight = saved.tensors.get(names[index]) if 0 <= index < len(names) else None
            shapes = () if weight is None else (weight.shape, torch.Size())
            fits = set(named) == _MOMENTS and all(e.shape in shapes for e in named.values())
            if not fits:
                raise damaged(path)
        return saved.moments

    def _restore(self, optimiser: torch.optim.AdamW, moments: Moments) -> None:
        weights = list(self.network.parameters())
        state = {
            index: {name: _placed(each, weights[index]) for name, each in named.items()}
            for index, named in moments.items()
        }
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": state, "param_groups": groups})

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

    def _answered(self, inputs: Inputs) -> Tensor:
        if self._answers is not None:
            given = torch.from_numpy(np.ascontiguousarray(inputs))
            if self._answers.takes(given):
                return self._answers.answer(given)
        return self.logits(self._there(inputs))

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
def _drawing_from(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers of this seed inside; outside nobody notices, on the GPU neither."""
    with ExitStack() as kept:
        if device.type == "cuda":
            kept.callback(_CUDA.set_rng_state, _CUDA.get_rng_state(device), device)
            _CUDA.manual_seed(seed)
        kept.callback(torch.set_rng_state, torch.get_rng_state())
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def initialised_from(seed: int) -> Iterator[None]:
    """Random weights of this seed inside; outside nobody notices."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # this alone: torch.manual_seed seeds GPUs too
        yield


def _placed(moment: Tensor, weight: Tensor) -> Tensor:
    """In the order of memory of its weight, which a fused optimiser relies on."""
    alike = moment.shape == weight.shape
    like = torch.empty_like(weight) if alike else moment.to(weight.device)
    return like.copy_(moment)
