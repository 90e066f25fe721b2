"""Folders of labelled samples as users have them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"blue": (40, 60, 220), "green": (40, 200, 60), "red": (220, 50, 40)}


def write_pictures(
    folder: Path, names: Sequence[str] = tuple(COLOURS), count: int = 10, side: int = 16
) -> Path:
    """A subfolder per class; each class has its colour, under noise."""
    draw = np.random.default_rng(0)
    for at, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        colour = COLOURS.get(name, (60 * at % 256, 90 * at % 256, 40 * at % 256))
        for number in range(count):
            noise = draw.normal(0, 20, (side, side, 3))
            pixels = (np.array(colour) + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:03}.png")
    return folder


def write_texts(path: Path, labels: Sequence[str | int], count: int = 10) -> Path:
    """A .jsonl or .csv file; the words of a text name its label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"text": f"text {at}, about {label}", "label": label}
        for at in range(count)
        for label in labels
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            table = csv.DictWriter(file, ("text", "label"))
            table.writeheader()
            table.writerows(rows)
    return path
