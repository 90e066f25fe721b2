"""A small trained model and labelled pictures, for docs/bring-your-model.md.

`python examples/own_model.py [FOLDER]` writes FOLDER/my-model, which is what `save_pretrained()`
writes, and FOLDER/my-pictures with a subfolder per class. It takes half a minute. The model was
trained on pictures of other colours, as published weights are trained on other pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

from migrator.learn.registry import transformers

SHAPES = ("ellipse", "rectangle")
TRAINED = ("brown", "cyan", "gray", "magenta", "orange", "purple")
OWN = ("black", "blue", "green", "pink", "red", "teal", "white", "yellow")
SIDE, COUNT, STEPS, BATCH = 32, 60, 80, 32


def main() -> None:
    """Write the model and the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    save_model(folder / "my-model")
    draw = np.random.default_rng(1)
    for colour in OWN:
        place = folder / "my-pictures" / colour
        place.mkdir(parents=True, exist_ok=True)
        for number in range(COUNT):
            picture(colour, SHAPES[number % 2], draw).save(place / f"{number:03}.png")


def picture(colour: str, shape: str, draw: np.random.Generator) -> Image.Image:
    """A shape somewhere on noise."""
    noise = draw.normal(128, 40, (SIDE, SIDE, 3)).clip(0, 255).astype(np.uint8)
    made = Image.fromarray(noise)
    x, y, wide = (int(number) for number in draw.integers((0, 0, 10), (12, 12, 18)))
    getattr(ImageDraw.Draw(made), shape)((x, y, x + wide, y + wide), fill=colour)
    return made


def save_model(folder: Path) -> None:
    """Train a small ResNet on shapes of other colours and save it with its image processor."""
    library: Any = transformers()
    torch.manual_seed(0)
    kinds = [(colour, shape) for colour in TRAINED for shape in SHAPES]
    config = library.ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 64],
        depths=[1, 1, 1],
        layer_type="basic",
        num_labels=len(kinds),
    )
    model = library.ResNetForImageClassification(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = np.random.default_rng(0)
    model.train()
    for _ in range(STEPS):
        labels = draw.integers(len(kinds), size=BATCH)
        pixels = np.stack([np.asarray(picture(*kinds[label], draw)) for label in labels])
        images = (torch.tensor(pixels).permute(0, 3, 1, 2) - 127.5) / 127.5
        loss = model(pixel_values=images, labels=torch.tensor(labels)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"loss {loss.item():.2f} after {STEPS} steps")
    model.eval().save_pretrained(folder)
    library.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)


if __name__ == "__main__":
    main()
