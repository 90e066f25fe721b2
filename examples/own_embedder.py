"""A model that is no classifier: it embeds a picture with a number, and learns from embeddings.

Run it in this folder:

    migrator serve embedder.yaml

Its inputs, outputs and labels are named tensors, which arrive and are returned as
dictionaries of numpy arrays.
"""

import numpy as np
import torch
from torch import nn

from migrator.core.tensors import TensorSpec

WIDTH = 8


class Embedder:
    """Correct is an embedding that points where its label does."""

    inputs = (TensorSpec("picture", "UINT8", (3, 16, 16)), TensorSpec("price", "FP32"))
    outputs = (TensorSpec("embedding", "FP32", (WIDTH,)), TensorSpec("length", "FP32"))
    labels = (TensorSpec("target", "FP32", (WIDTH,)),)
    learning_rate = 0.03

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.network = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, WIDTH))
        self.optimiser = torch.optim.Adam(self.network.parameters())
        self.device = "cpu"

    @classmethod
    def build(cls, classes, seed):
        return cls(seed)

    def to(self, device):
        self.device = device
        self.network.to(device)

    def embed(self, inputs):
        pictures = torch.from_numpy(inputs["picture"]).to(self.device).float() / 255
        prices = torch.from_numpy(inputs["price"]).to(self.device)
        return self.network(torch.cat((pictures.mean((2, 3)), prices[:, None]), 1))

    @torch.inference_mode()
    def infer(self, inputs):
        embedded = self.embed(inputs)
        lengths = embedded.norm(dim=1)
        return {"embedding": embedded.cpu().numpy(), "length": lengths.cpu().numpy()}

    def is_correct(self, outputs, label):
        """`outputs` and `label` are of one row."""
        apart = np.linalg.norm(outputs["embedding"]) * np.linalg.norm(label["target"])
        return outputs["embedding"] @ label["target"] > 0.95 * apart

    def train_step(self, inputs, labels, lr):
        self.optimiser.param_groups[0]["lr"] = lr
        targets = torch.from_numpy(labels["target"]).to(self.device)
        loss = (1 - nn.functional.cosine_similarity(self.embed(inputs), targets)).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def save(self, path, training=False):
        state = {"network": self.network.state_dict()}
        if training:
            state["optimiser"] = self.optimiser.state_dict()
        torch.save(state, path)

    def load(self, path):
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.network.load_state_dict(state["network"])
        if "optimiser" in state:
            self.optimiser.load_state_dict(state["optimiser"])
