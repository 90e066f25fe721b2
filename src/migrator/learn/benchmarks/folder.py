"""`folder:PATH[@N]`: a user's own labelled samples as a benchmark.

Pictures are in a subfolder per class, texts in `train.jsonl` or `train.csv` with the columns `text`
and `label`. Classes arrive in alphabetical order, N at a time.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.learn.benchmarks.benchmark import (
    Benchmark,
    Images,
    Material,
    Origin,
    encoded,
    pillow,
    reading_data,
    split_held_out,
)
from migrator.learn.model import Modality
from migrator.learn.samples import Stream, random_stream

PREFIX = "folder:"
_AT_A_TIME = 2
"""Classes that arrive in a scenario unless N is given."""
_TRAIN, _HELD_OUT = "train", ("test", "validation", "val")
_HELD_OUT_PART = 0.2
"""Part of every class that is held out where the folder does not say which samples are."""
_LEAST_TRAINED, _LEAST_HELD_OUT = 4, 1
PICTURES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"},
)
_PIXELS = 224
"""Side of pictures that have several sizes or are not square."""
_FORM = "a subfolder of pictures per class, or train.jsonl or train.csv with text and label"

Sample = tuple[str, Any]
"""Its class; the path of a picture, or a text."""


@dataclass(frozen=True)
class Folder(Benchmark):
    """The samples of a folder."""

    path: Path = Path()
    train: Sequence[Sample] = field(default=(), repr=False, compare=False)
    held_out: Sequence[Sample] = field(default=(), repr=False, compare=False)
    """Empty: a part of `train`, drawn by the seed."""

    @property
    def classes(self) -> int:
        """Number of classes; the last scenario may bring fewer than the others."""
        return len(self.names)

    def load(self, origin: Origin) -> Material:
        """Read the samples, and draw the held-out ones if the folder does not name them."""
        every = [*self.train, *self.held_out]
        number = {name: at for at, name in enumerate(self.names)}
        labels = np.array([number[name] for name, _ in every], np.int64)
        if self.held_out:
            held = np.arange(len(every)) >= len(self.train)
        else:
            held = _drawn(labels, origin.seed)
        contents = [content for _, content in every]
        source = (
            f"{self.path}, {int((~held).sum())} samples to train on, {int(held.sum())} held out"
        )
        if self.modality is Modality.TEXT:
            texts = np.array(contents, dtype=object)
            return encoded(split_held_out(texts, labels, held, self, source), origin.encode)
        pictures = read_pictures(contents, origin.pixels)
        return split_held_out(pictures, labels, held, self, source)


def folder_benchmark(name: str) -> Folder:
    """The benchmark called folder:PATH or folder:PATH@N; InputError if the samples do not do."""
    path, at_a_time = _parsed(name)
    if not path.is_dir():
        raise InputError(f"{name}: there is no folder {str(path)!r}; name one with {_FORM}")
    try:
        modality, train, held_out = _found(path)
    except PermissionError as error:
        raise InputError(
            f"{error.filename}: permission denied; make it readable for you"
        ) from error
    names = _class_names(path, train, held_out)
    at_a_time = min(at_a_time, len(names))
    scenarios = -(-len(names) // at_a_time)
    return Folder(
        name,
        scenarios,
        at_a_time,
        modality,
        f"{len(names)} classes of {path}, {at_a_time} at a time",
        path=path,
        names=names,
        train=train,
        held_out=held_out,
    )


def _parsed(name: str) -> tuple[Path, int]:
    """The folder, and how many classes arrive at a time."""
    path, at, number = name.removeprefix(PREFIX).rpartition("@")
    if not at:
        path, number = number, str(_AT_A_TIME)
    if not path or not re.fullmatch(r"[1-9]\d{0,5}", number):
        raise InputError(
            f"{name[:200]!r}: write {PREFIX}PATH, or {PREFIX}PATH@N for N new classes at a time"
        )
    return Path(path).expanduser(), int(number)


def _found(path: Path) -> tuple[Modality, list[Sample], list[Sample]]:
    """The kind of samples, those to train on, and those that are held out."""
    below = path / _TRAIN if (path / _TRAIN).is_dir() else path
    apart = frozenset(_HELD_OUT) if below == path else frozenset[str]()
    pictures = _class_pictures(below, apart)
    texts = _table_of(path, _TRAIN)
    if pictures and texts is not None:
        raise InputError(f"{path} has both pictures and {texts.name}; keep one kind of samples")
    if texts is not None:
        tables = [_table_of(path, part) for part in _HELD_OUT]
        held = next((table for table in tables if table is not None), None)
        return Modality.TEXT, list(_rows(texts)), [] if held is None else list(_rows(held))
    if not any(files for files in pictures.values()):
        raise InputError(f"{path} has no pictures in subfolders and no texts; give it {_FORM}")
    for name, files in pictures.items():
        if not files:
            raise InputError(f"{below / name} has no pictures; add some or remove the folder")
    held_out = next((path / part for part in _HELD_OUT if (path / part).is_dir()), None)
    held_pictures = {} if held_out is None else _class_pictures(held_out)
    return Modality.IMAGES, _samples(pictures), _samples(held_pictures)


def _class_pictures(path: Path, apart: frozenset[str] = frozenset()) -> dict[str, list[Path]]:
    """The pictures in the subfolders of a folder, by their names; empty without subfolders."""
    subfolders = [
        subfolder
        for subfolder in sorted(path.iterdir())
        if subfolder.is_dir() and not subfolder.name.startswith(".") and subfolder.name not in apart
    ]
    return {
        subfolder.name: sorted(
            file
            for file in subfolder.iterdir()
            if file.suffix.lower() in PICTURES and not file.name.startswith(".")
        )
        for subfolder in subfolders
    }


def _samples(pictures: dict[str, list[Path]]) -> list[Sample]:
    return [(name, file) for name, files in pictures.items() for file in files]


def _table_of(path: Path, part: str) -> Path | None:
    """The file with the texts of a part; None if there is none."""
    paths = [file for file in (path / f"{part}.jsonl", path / f"{part}.csv") if file.is_file()]
    if len(paths) > 1:
        raise InputError(f"{path} has both {paths[0].name} and {paths[1].name}; keep one of them")
    return paths[0] if paths else None


def _rows(path: Path) -> Iterator[Sample]:
    """The texts of a file with their labels."""
    read = _json_rows if path.suffix == ".jsonl" else _csv_rows
    try:
        # an error names the line, and a byte order mark is no part of the first column's name
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, row in read(path, file):
                text, label = row.get("text"), row.get("label")
                is_label = isinstance(label, str | int) and not isinstance(label, bool)
                if not isinstance(text, str) or not is_label or not str(label).strip():
                    raise InputError(
                        f"{path}, line {number}: a sample needs a text and a label; correct it"
                    )
                yield str(label).strip(), text
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not encoded as UTF-8; save it in that encoding") from error


def _json_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise InputError(
                f"{path}, line {number}: not a JSON object; write one per line, such as "
                '{"text": "...", "label": "..."}'
            )
        yield number, row


def _csv_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = csv.DictReader(lines)
    missing = [column for column in ("text", "label") if column not in (rows.fieldnames or ())]
    if missing:
        raise InputError(
            f"{path}: there is no column {' and no column '.join(missing)}; name the columns "
            "text and label in the first line"
        )
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}: {error}; correct the line") from error


def _class_names(
    path: Path, train: Sequence[Sample], held_out: Sequence[Sample]
) -> tuple[str, ...]:
    """The classes in their order; InputError if there are too few of them or of their samples."""
    trained, held = (Counter(name for name, _ in part) for part in (train, held_out))
    names = sorted(trained, key=_order(trained))
    if len(names) < 2:
        only = f"one class only, {names[0]!r}" if names else "no samples"
        raise InputError(f"{path} has {only}; give it samples of two classes or more")
    unknown = sorted(set(held) - set(trained))
    if unknown:
        raise InputError(
            f"{path} has held-out samples of class {unknown[0]!r} and none to train on; add some"
        )
    least = _LEAST_TRAINED + (0 if held_out else _LEAST_HELD_OUT)
    for name in names:
        if trained[name] < least:
            raise InputError(
                f"{path} has too few samples of class {name!r} to train on, {trained[name]}; "
                f"give {least} or more"
            )
        if held_out and not held[name]:
            raise InputError(f"{path} has no held-out samples of class {name!r}; add some")
    return tuple(names)


def _order(names: Counter[str]) -> Callable[[str], Any]:
    """Numbers are ordered by value, other names by the alphabet."""
    return int if all(re.fullmatch(r"-?\d{1,18}", name) for name in names) else str


def _drawn(labels: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """Which samples are held out: a part of every class, drawn by the seed."""
    draw = random_stream(seed, Stream.HELD_OUT)
    held = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = draw.permutation(np.flatnonzero(labels == label))
        held[rows[: max(_LEAST_HELD_OUT, round(_HELD_OUT_PART * len(rows)))]] = True
    return held


def read_pictures(files: Sequence[Path], pixels: int | None) -> Images:
    """Pictures as uint8 (n, 3, side, side): cut to a square around the middle, then resized."""
    side = pixels or _common_side(files)
    operations = import_module("PIL.ImageOps")
    out = np.empty((len(files), 3, side, side), np.uint8)
    for at, file in enumerate(files):
        with _opened(file) as opened:
            opened.draft("RGB", (2 * side, 2 * side))  # large JPEGs are decoded smaller
            upright = operations.exif_transpose(opened).convert("RGB")
            out[at] = np.asarray(operations.fit(upright, (side, side))).transpose(2, 0, 1)
    return out


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """The picture in a file; InputError if it cannot be read."""
    image = pillow()
    with reading_data(file, "picture", "repair the file or remove it"), image.open(file) as opened:
        yield opened


def _common_side(files: Sequence[Path]) -> int:
    """The side of square pictures that all have the same size, otherwise a usual one."""
    sizes = set()
    for file in files:
        with _opened(file) as opened:
            sizes.add(opened.size)
    wide, high = min(sizes)
    return int(wide) if len(sizes) == 1 and wide == high else _PIXELS
