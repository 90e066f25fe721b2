"""A model that is no classifier: it embeds a picture with a number, and learns from embeddings.

Run it in this folder:

    migrator serve embedder.yaml

Its inputs, outputs and labels are named tensors, which arrive and are returned as
dictionaries of numpy arrays.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import nn

from migrator.core.tensors import TensorSpec

Arrays = dict[str, NDArray[Any]]
WIDTH = 8


class Embedder:
    """Correct is an embedding that points where its label does."""

    inputs = (TensorSpec("picture", "UINT8", (3, 16, 16)), TensorSpec("price", "FP32"))
    outputs = (TensorSpec("embedding", "FP32", (WIDTH,)), TensorSpec("length", "FP32"))
    labels = (TensorSpec("target", "FP32", (WIDTH,)),)
    learning_rate = 0.1

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.network = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, WIDTH))
        self.optimiser = torch.optim.Adam(self.network.parameters())
        self.device = "cpu"

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        del classes  # it has none
        return cls(seed)

    def to(self, device: str) -> None:
        self.device = device
        self.network.to(device)

    def embed(self, inputs: Arrays) -> torch.Tensor:
        pictures = torch.from_numpy(inputs["picture"]).to(self.device).float() / 255
        prices = torch.from_numpy(inputs["price"]).to(self.device)
        embedded: torch.Tensor = self.network(
            torch.cat((pictures.mean((2, 3)), prices[:, None]), 1)
        )
        return embedded

    @torch.inference_mode()
    def infer(self, inputs: Arrays) -> Arrays:
        embedded = self.embed(inputs)
        lengths = embedded.norm(dim=1)
        return {"embedding": embedded.cpu().numpy(), "length": lengths.cpu().numpy()}

    def is_correct(self, outputs: Arrays, label: Arrays) -> bool:
        """`outputs` and `label` are of one row."""
        apart = np.linalg.norm(outputs["embedding"]) * np.linalg.norm(label["target"])
        return bool(outputs["embedding"] @ label["target"] > 0.95 * apart)

    def train_step(self, inputs: Arrays, labels: Arrays, lr: float) -> float:
        self.optimiser.param_groups[0]["lr"] = lr
        targets = torch.from_numpy(labels["target"]).to(self.device)
        loss = (1 - nn.functional.cosine_similarity(self.embed(inputs), targets)).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def save(self, path: Path, training: bool = False) -> None:
        del training  # a resumed training begins with a new optimiser
        save_file(self.network.state_dict(), path)

    def load(self, path: Path) -> None:
        self.network.load_state_dict(load_file(path, self.device))
