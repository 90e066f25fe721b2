"""Small models of transformers that tests save and read back, and trained copies of any."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from migrator.learn.registry import transformers

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "the", "cat", "dog", "##s")
SENTENCE = "The cats, the dog"


def save_vit(folder: Path, classes: int = 3, seed: int = 0) -> Any:
    """A vision transformer for images of 32 pixels."""
    library = transformers()
    config = library.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        num_labels=classes,
    )
    processor = library.ViTImageProcessor(size={"height": 32, "width": 32})
    return _save(library.ViTForImageClassification, config, processor, folder, seed)


def save_convnext(folder: Path, classes: int = 3, seed: int = 0) -> Any:
    """Convolutions for images of 64 pixels, cut out of 73."""
    library = transformers()
    config = library.ConvNextConfig(
        hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=classes
    )
    processor = library.ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=0.875)
    return _save(library.ConvNextForImageClassification, config, processor, folder, seed)


def save_bert(folder: Path, classes: int = 3, seed: int = 0, task: str = "") -> Any:
    """BERT for 64 tokens of a vocabulary of 17."""
    library = transformers()
    config = library.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=classes,
    )
    kind = getattr(library, task or "BertForSequenceClassification")
    return _save(kind, config, _tokenizer(), folder, seed)


def _tokenizer() -> Any:
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    return transformers().BertTokenizer(vocab=vocabulary)


def _save(kind: Any, config: Any, processor: Any, folder: Path, seed: int) -> Any:
    library = transformers()
    library.utils.logging.disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = kind(config).eval()
    network.save_pretrained(folder)
    processor.save_pretrained(folder)
    return network


def train_copy(model: Any, again: Any, path: Path, lr: float, steps: int = 1) -> list[float]:
    """The losses of a copy, which leaves the model as it is and gives `again` its weights."""
    inputs, labels = model.example(4), np.array([0, 1, 2, 0])
    before = model.infer(inputs)
    trained = copy.deepcopy(model)
    losses = [trained.train_step(inputs, labels, lr) for _ in range(steps)]
    np.testing.assert_array_equal(model.infer(inputs), before)
    trained.save(path)
    again.load(path)
    np.testing.assert_array_equal(again.infer(inputs), trained.infer(inputs))
    return losses
