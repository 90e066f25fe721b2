"""Base classes of the built-in models: everything but the network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.core.training import Layers
from migrator.learn.cuda_graphs import CapturedAnswers, CapturedSteps, convert_to_bf16
from migrator.learn.depthwise import DepthwiseKernels, can_compile, has_depthwise
from migrator.learn.model import Inputs, Labels, Modality, Scores, damaged
from migrator.learn.tokens import PADDING, TOKENS, VOCABULARY
from migrator.learn.trained_layers import Frozen, freeze
from migrator.learn.weights import (
    Moments,
    Saved,
    SavedState,
    features_of,
    last_layer,
    place_rows,
    read_weights,
    write_weights,
)

_CUDA: Any = torch.cuda
_WEIGHT_DECAY = 0.01
_MAX_GRADIENT_NORM = 1.0
_SMOOTHING = 0.1
"""Part of a label that is spread over all classes seen, so that new classes do not take over."""


class TorchModel(ABC):
    """A classifier with a torch network. Mixed precision (bf16) on CUDA, float32 on a CPU."""

    name: ClassVar[str]
    summary: ClassVar[str]
    modality: Modality
    learning_rate: float
    head: str | tuple[str, ...] = "classifier"
    """Name prefixes of the tensors that depend on the number of classes."""
    last_block: str | tuple[str, ...] = ()
    """Name prefixes of the tensors of the last block before the head; empty: found in the network
    (`learn/trained_layers.py`)."""

    def __init__(self, network: nn.Module, classes: int, seed: int) -> None:
        self.network, self.classes, self.seed = network, classes, seed
        self.device = torch.device("cpu")
        self.weights = f"random, seed {seed}"
        self.steps = 0
        self.seen = np.zeros(classes, dtype=bool)
        """Classes trained on so far; the others get a score of minus infinity."""
        self._optimiser: torch.optim.AdamW | None = None
        self._captured: CapturedSteps | None = None
        self._answers: CapturedAnswers | None = None
        self._frozen = Frozen()
        self._has_kernels = False
        """Whether answers use our kernels for depthwise convolutions."""
        self._unseen = torch.ones(classes, dtype=torch.bool)
        self._prior = torch.zeros(classes)

    @abstractmethod
    def logits(self, inputs: Tensor) -> Tensor:
        """Scores of a batch that is already on the device; differentiable."""

    @abstractmethod
    def example(self, batch: int) -> Inputs:
        """A batch of inputs of the model's own size."""

    @classmethod
    @abstractmethod
    def build(cls, classes: int, seed: int) -> Self:
        """A new model with random weights from the seed."""

    def augmented(self, inputs: Tensor) -> Tensor:
        """The inputs to train on instead of these; may draw random numbers."""
        return inputs

    def to(self, device: str) -> None:
        """Move to "cpu" or "cuda"; the state of a training is dropped."""
        self.device = torch.device(device)
        self.network.to(self.device)
        self._unseen, self._prior = self._unseen.to(self.device), self._prior.to(self.device)
        self._optimiser = self._captured = self._answers = None

    @property
    def is_captured(self) -> bool:
        """Whether answers are captured as graphs: on a GPU."""
        return self.device.type == "cuda"

    def infer(self, inputs: Inputs) -> Scores:
        self.network.eval()
        with self._within_memory(), torch.inference_mode(), self._precision():
            scores = self._infer(inputs).float()
            if scores.is_cuda:
                # while a copy to the host waits for the batch, no other thread gets work to the GPU
                torch.cuda.current_stream(scores.device).synchronize()
            output: Scores = scores.cpu().numpy()
        if self.seen.any():
            output[:, ~self.seen] = -np.inf
        return output

    def begin_serving(self, batch: int) -> None:
        """Optimise for inference of batches of up to `batch`; on a GPU it cannot be trained then.

        Converts weights to bf16 and captures inference as CUDA graphs, as when profiling.
        """
        if not self.is_captured:
            return
        self.network.eval()
        self.network.requires_grad_(False)
        convert_to_bf16(self.network)
        self._has_kernels = has_depthwise(self.network) and can_compile()
        example = self._on_device(self.example(1))
        with self._within_memory(), torch.inference_mode(False), torch.no_grad():
            try:
                self._answers = CapturedAnswers(self._eager, example, batch)
            except RuntimeError:
                self._answers = None  # a network that depends on the host runs without graphs

    def exchange(self, other: Self) -> bool:
        """Exchange the weights with a copy, each in its own memory, so that captured graphs stay.

        False: nothing is captured, and the copy can take this model's place.
        """
        if self._answers is None:
            return False
        own, theirs = self.network.state_dict(), other.network.state_dict()
        # by address: tensors that share their memory have several names
        pairs = {tensor.data_ptr(): (tensor, theirs[name]) for name, tensor in own.items()}.values()
        with torch.no_grad(), self._within_memory():
            # all the memory it needs: without it nothing is exchanged rather than a part
            spare = torch.empty(
                max(tensor.nbytes for tensor in own.values()), dtype=torch.uint8, device=self.device
            )
            for mine, others in pairs:
                before = spare[: mine.nbytes].view(mine.dtype).view(mine.shape)
                before.copy_(mine)
                mine.copy_(others)
                others.copy_(before)
        for name in ("seen", "weights", "steps"):
            kept = getattr(self, name)
            setattr(self, name, getattr(other, name))
            setattr(other, name, kept)
        return True

    def train_only(self, layers: Layers) -> None:
        """From now on trainings change these layers only; InputError if they are not known."""
        self._frozen.release(self.network)
        self._frozen = Frozen()
        self._optimiser = self._captured = None  # both are of the layers trained before
        self._frozen = freeze(self.network, layers, self.head, self.last_block, type(self).__name__)

    def begin_training(self, inputs: Inputs, labels: Labels, counts: Labels) -> None:
        """Prepare for a training: new classes start from the mean features of these samples.

        `counts`: training samples of every class. Frequent classes get no advantage from them.
        """
        counted = torch.zeros(self.classes)
        counted[: len(counts)] = torch.from_numpy(counts).float()
        present = counted > 0
        prior = torch.where(present, torch.log(counted / counted.sum().clamp(min=1)), 0.0)
        self._prior.copy_(prior)
        new = np.setdiff1d(labels, np.flatnonzero(self.seen))
        head = last_layer(self.network, self.head, self.classes)
        if head is not None and len(new):
            with self._within_memory():
                place_rows(head, features_of(head, self.infer, inputs), labels, new)

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        """One deterministic step of AdamW on the batch; the loss."""
        self.network.train()
        self._frozen.hold(self.network)
        optimiser = self._optimiser or self._new_optimiser()
        for group in optimiser.param_groups:
            _set_rate(group, lr)
        self.seen[labels] = True
        self._unseen.copy_(torch.from_numpy(~self.seen))
        wanted = torch.from_numpy(labels).to(self.device)
        seed = self.seed * 1_000_003 + self.steps
        with self._within_memory(), _seeded(seed, self.device):
            batch = self.augmented(self._on_device(inputs))
            if self._captured is None:
                loss = self._step(batch, wanted)
            else:
                loss = self._captured.run(self._step, batch, wanted)
        self.steps += 1
        return float(loss)

    def save(self, path: Path, *, training: bool = False) -> None:
        """Write the weights as safetensors, with `training` also the optimiser's moments."""
        moments: Moments = {}
        if training and self._optimiser is not None:
            moments = self._optimiser.state_dict()["state"]
        seen = tuple(int(label) for label in np.flatnonzero(self.seen))
        note = SavedState(self.steps, seen, self.weights)
        write_weights(self.network.state_dict(), moments, note, path)

    def load(self, path: Path) -> None:
        """Load what `save` wrote; InputError if its head is for more classes than the model's."""
        saved = read_weights(path)
        extended = self._take_weights(saved, path, whole=True)
        if saved.note is None or extended:
            return
        self.steps, self.weights = saved.note.steps, saved.note.weights
        if saved.moments:
            self._restore(self._new_optimiser(), saved.moments)

    def begin_with(self, path: Path) -> None:
        """Load only the weights of a file or folder; a head for more classes is replaced."""
        self._take_weights(read_weights(path), path)

    def end_training(self) -> None:
        """Free what only training needs: moments, gradients, captured steps."""
        self.train_only(Layers.ALL)
        self.network.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            _CUDA.empty_cache()  # memory of graphs is not reused

    def __getstate__(self) -> dict[str, Any]:
        """The state without optimiser and graphs, so that a copy starts its training afresh."""
        return {**self.__dict__, "_optimiser": None, "_captured": None, "_answers": None}

    def mismatch(self, names: list[str]) -> str:
        """The message about weights of which these tensors do not fit."""
        return (
            f"its weights do not fit {type(self).__name__} ({len(names)} tensors, such as "
            f"{names[0]}, are missing or of another shape); name a file of this model"
        )

    def _take_weights(self, saved: Saved, path: Path, *, whole: bool = False) -> bool:
        """Load these weights; whether the head got more rows. `whole`: the head must fit."""
        tensors, classes = self._extended(saved.tensors)
        # files from elsewhere do not list their classes
        seen = () if saved.note is None else saved.note.seen
        origin = f"loaded from {path.name}{_extension(classes)}"
        self._adopt(tensors, seen, origin, path, whole=whole)
        return classes is not None

    def begin_from(
        self, tensors: Mapping[str, Tensor], classes: int | None, origin: str, path: Path
    ) -> None:
        """Begin with published weights whose head is for `classes`; None: it is not usable.

        A head for as many classes as this model's is kept, and one for fewer classes gives the
        first rows; otherwise the head is random. Classes with a row from there count as seen.
        `words` is the origin, `path` is named in errors.
        """
        if classes is None:
            tensors = {k: tensor for k, tensor in tensors.items() if not k.startswith(self.head)}
        tensors, fewer = self._extended(tensors)
        self._adopt(tensors, range(classes or 0), f"{origin}{_extension(fewer)}", path)

    def _extended(self, tensors: Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], int | None]:
        """The tensors with this model's random rows for classes beyond those of their head.

        Also the number of classes of their head, if it has fewer than this model.
        """
        head = {k: own for k, own in self.network.state_dict().items() if k.startswith(self.head)}
        heads = [tensors.get(name) for name in head]
        rows = {len(tensor) for tensor in heads if tensor is not None and tensor.ndim}
        fewer = min(rows, default=0)
        if None in heads or len(rows) != 1 or not 0 < fewer < self.classes:
            return tensors, None
        alike = all(tensors[k].shape[1:] == own.shape[1:] for k, own in head.items())
        if not alike or any(len(own) != self.classes for own in head.values()):
            return tensors, None
        more = {k: torch.cat((tensors[k], own[fewer:].cpu())) for k, own in head.items()}
        return {**tensors, **more}, fewer

    def _adopt(
        self,
        tensors: Mapping[str, Tensor],
        seen: Sequence[int],
        origin: str,
        path: Path,
        *,
        whole: bool = False,
    ) -> None:
        """Begin afresh with these weights; a head that does not fit stays random."""
        left = self._copy_fitting(tensors, path, whole)
        self._optimiser = self._captured = None
        self.steps = 0
        self.weights = origin + (", head random" if left else "")
        # another head has other classes
        self.seen[:] = np.isin(np.arange(self.classes), () if left else seen)

    def _copy_fitting(self, tensors: Mapping[str, Tensor], path: Path, whole: bool) -> bool:
        """Copy the tensors that fit; whether the head did not."""
        own = self.network.state_dict()
        prefix = getattr(self.network, "base_model_prefix", "")
        if prefix and not any(name in own for name in tensors):
            tensors = {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
        left = [k for k in own if k not in tensors or tensors[k].shape != own[k].shape]
        taken = [k for k in own if k not in left]
        # batch counters are missing in files from elsewhere and have no effect
        wrong = [k for k in left if not k.startswith(self.head) and "num_batches" not in k]
        if wrong:
            raise InputError(f"{path}: {self.mismatch(wrong)}")
        other_head = [k for k in left if k.startswith(self.head)]
        if whole and other_head:
            raise InputError(
                f"{path}: its head is not for the {self.classes} classes of the model "
                f"({other_head[0]} is missing or of another shape); name weights for as many "
                "classes, or change the number of classes"
            )
        if any(tensors[k].is_floating_point() != own[k].is_floating_point() for k in taken):
            raise damaged(path)
        self.network.load_state_dict({k: tensors[k] for k in taken}, strict=False)
        return bool(other_head)

    def _new_optimiser(self) -> torch.optim.AdamW:
        on_gpu = self.device.type == "cuda"
        self._optimiser = torch.optim.AdamW(
            [parameter for _, parameter in self._trained()],
            # a tensor, so that a captured step reads the current rate
            lr=torch.zeros((), device=self.device) if on_gpu else 0.0,
            weight_decay=_WEIGHT_DECAY,
            fused=True,
            capturable=on_gpu,
        )
        self._captured = CapturedSteps() if on_gpu else None
        return self._optimiser

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        """The weights that the optimiser has, in its order."""
        named = self.network.named_parameters()
        return [(name, weight) for name, weight in named if name not in self._frozen.parameters]

    def _restore(self, optimiser: torch.optim.AdamW, moments: Moments) -> None:
        weights = [weight for _, weight in self._trained()]
        state = {
            index: {name: _in_layout_of(moment, weights[index]) for name, moment in named.items()}
            for index, named in moments.items()
        }
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": state, "param_groups": groups})

    def _step(self, batch: Tensor, wanted: Tensor) -> Tensor:
        """A training step on a batch that is already on the device; the loss."""
        assert self._optimiser is not None
        self._optimiser.zero_grad(set_to_none=True)
        with self._precision():
            output = self.logits(batch)
        # classes that have not arrived yet must not be trained against
        output = (output.float() + self._prior).masked_fill(self._unseen, -1e9)
        loss = self._loss(output, wanted)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.network.parameters(), _MAX_GRADIENT_NORM)
        self._optimiser.step()
        return loss.detach()

    def _loss(self, output: Tensor, wanted: Tensor) -> Tensor:
        """Cross entropy with labels that are smoothed over the classes seen."""
        chances = nn.functional.log_softmax(output, 1)
        own = chances.gather(1, wanted[:, None]).squeeze(1)
        spread = chances.masked_fill(self._unseen, 0).sum(1) / (~self._unseen).sum()
        return -((1 - _SMOOTHING) * own + _SMOOTHING * spread).mean()

    def _infer(self, inputs: Inputs) -> Tensor:
        if self._answers is not None:
            given = torch.from_numpy(np.ascontiguousarray(inputs))
            if self._answers.takes(given):
                return self._answers.answer(given)
        given = self._on_device(inputs)
        if self.device.type == "cpu" or len(inputs) < 2:
            return self._eager(given)
        # few sizes of batches: choosing kernels for a new one takes seconds
        spare = (1 << (len(inputs) - 1).bit_length()) - len(inputs)
        padded = torch.cat([given, given[-1:].expand(spare, *given.shape[1:])])
        return self._eager(padded)[: len(inputs)]

    def _eager(self, inputs: Tensor) -> Tensor:
        """Scores without a graph."""
        with DepthwiseKernels() if self._has_kernels and self.is_captured else nullcontext():
            return self.logits(inputs)

    def _on_device(self, inputs: Inputs) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device, non_blocking=True)

    @contextmanager
    def _within_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"{type(self).__name__} does not fit into the memory of {self.device}; use a "
                "smaller batch or a larger instance"
            ) from error

    def _precision(self) -> torch.autocast:
        on_gpu = self.device.type == "cuda"
        # weights cast for one replay of a graph must not be reused in the next
        return torch.autocast(self.device.type, torch.bfloat16, on_gpu, cache_enabled=False)


def _extension(classes: int | None) -> str:
    return "" if classes is None else f", head extended from {classes} classes"


def _set_rate(group: dict[str, Any], lr: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Use random numbers of this seed; the generators' states are restored afterwards."""
    with ExitStack() as kept:
        if device.type == "cuda":
            kept.callback(_CUDA.set_rng_state, _CUDA.get_rng_state(device), device)
            _CUDA.manual_seed(seed)
        kept.callback(torch.set_rng_state, torch.get_rng_state())
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Initialise weights from this seed; the generator's state is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # this alone: torch.manual_seed seeds GPUs too
        yield


def _in_layout_of(moment: Tensor, weight: Tensor) -> Tensor:
    """The moment in the memory layout of its weight, as the fused optimiser requires."""
    alike = moment.shape == weight.shape
    like = torch.empty_like(weight) if alike else moment.to(weight.device)
    return like.copy_(moment)


class TextModel(TorchModel):
    """A text classifier that reads token numbers (`learn/tokens.py`)."""

    modality = Modality.TEXT
    vocabulary: int = VOCABULARY
    """Inputs are numbers from 0 to below this."""
    padding: int = PADDING

    @classmethod
    @abstractmethod
    def network_of(cls, classes: int) -> nn.Module:
        """A newly initialised network."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        with seeded_weights(seed):
            return cls(cls.network_of(classes), classes, seed)

    def logits(self, inputs: Tensor) -> Tensor:
        """Scores of token numbers, by a network of transformers."""
        tokens = inputs.to(torch.int64)
        present = (tokens != self.padding).to(torch.int64)
        output: Tensor = self.network(input_ids=tokens, attention_mask=present).logits
        return output

    def example(self, batch: int) -> Inputs:
        return np.random.default_rng(0).integers(2, VOCABULARY, (batch, TOKENS), dtype=np.int32)
