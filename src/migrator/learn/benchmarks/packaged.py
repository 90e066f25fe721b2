"""NC-CIFAR-10, NC-CORe50, NC-20-Newsgroups and NC-Synthetic, which needs no download.

Newsgroup messages lose the parts that identify the group without being about its topic: header,
quotations with their introduction, and the signature.
"""

from __future__ import annotations

import json
import lzma
import pickle
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from migrator.learn.benchmarks.benchmark import (
    Benchmark,
    FileBenchmark,
    Images,
    Material,
    Origin,
    damaged_file,
    decode_images,
    load_packed,
    reading_data,
    split_held_out,
)
from migrator.learn.model import Modality, Samples, Stream, concatenate, random_stream

_BATCHES = (*(f"data_batch_{each}" for each in range(1, 6)), "test_batch")
_CIFAR_PIXELS = 32
_CIFAR_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_FIELD = re.compile(r"[A-Za-z][\w-]*:")
_MARKED = re.compile(r"\s*(?:\w{0,4}>|[|:](?:\s|$))")
"""Start of a quoted line; some programs put the author's initials before the mark."""
_ADDRESS = re.compile(r"\S@\S")
_RULE = re.compile(r"\s*[-_=*~+#]{2,}\s*")
_SIGNATURE_LINES = 8
"""More lines than this after a rule belong to the message."""


class _PlainUnpickler(pickle.Unpickler):
    """Reads arrays, numbers and text only, so that a batch file cannot run code."""

    _ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        """A class that arrays consist of; any other is refused."""
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} does not belong in a batch")
        return super().find_class(module, name)


class Cifar10(FileBenchmark):
    """The public python batches, as an archive or unpacked, or packed pictures."""

    def read(self, path: Path) -> Material:
        """Read the batches or the packed pictures."""
        if path.suffix == ".npz":
            return load_packed(path, _CIFAR_PIXELS, self)
        with reading_data(path, "set of CIFAR-10 python batches"):
            parts = [(name, *self._pictures(each)) for name, each in _batches(path)]
            images = np.concatenate([each for _, each, _ in parts])
            labels = np.concatenate([each for _, _, each in parts])
            held = np.concatenate([np.full(len(each), n == "test_batch") for n, _, each in parts])
        return split_held_out(images, labels, held, self, path.name)

    def _pictures(self, batch: dict[str, Any]) -> tuple[Images, NDArray[np.int64]]:
        """Pictures and labels of a batch; ValueError if it is not a batch."""
        pictures, labels = np.asarray(batch["data"]), np.asarray(batch["labels"])
        if pictures.dtype != np.uint8 or labels.dtype.kind not in "iu":
            raise ValueError("wrong types")
        if pictures.shape != (len(labels), 3 * _CIFAR_PIXELS**2) or not len(labels):
            raise ValueError("labels do not match pictures")
        if labels.min() < 0 or labels.max() >= self.classes:
            raise ValueError("unknown classes")
        return pictures.reshape(-1, 3, _CIFAR_PIXELS, _CIFAR_PIXELS), labels.astype(np.int64)


def _batches(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.is_dir():
        for name in _BATCHES:
            with (path / name).open("rb") as file:
                yield name, _unpickle(file)
        return
    with tarfile.open(path) as archive:
        for name in _BATCHES:
            member = archive.extractfile(f"cifar-10-batches-py/{name}")
            if member is None:
                raise KeyError(name)
            yield name, _unpickle(member)


def _unpickle(file: IO[bytes]) -> dict[str, Any]:
    read = _PlainUnpickler(file, encoding="bytes").load()
    return {key.decode(): value for key, value in read.items()}


_CORE_PIXELS = 64
_HELD_OUT_SESSIONS = frozenset({"s3", "s7", "s10"})
"""Sessions that the data set's authors hold out."""
_EVERY = 20
"""Every 20th frame of a film is used: neighbours look alike."""


class Core50(FileBenchmark):
    """The public folders s1 to s11 with o1 to o50 each, or the packed stand-in."""

    def read(self, path: Path) -> Material:
        """Read the original or the stand-in."""
        if path.suffix != ".npz":
            return self._original(path)
        source = f"{path.name} (Tiny ImageNet, in place of CORe50)"
        return replace(load_packed(path, _CORE_PIXELS, self), source=source)

    def _original(self, folder: Path) -> Material:
        pictures, labels, held = [], [], []
        for film in sorted(folder.glob("s*/o*")):
            session, thing = film.parent.name, film.name
            frames = sorted(film.glob("*.png"))[::_EVERY]
            if not thing[1:].isdecimal() or not 1 <= int(thing[1:]) <= self.classes:
                raise damaged_file(film, "film of one of CORe50's objects, o1 to o50")
            pictures += frames
            labels += [int(thing[1:]) - 1] * len(frames)
            held += [session in _HELD_OUT_SESSIONS] * len(frames)
        if len(set(labels)) < self.classes or not any(held) or all(held):
            raise damaged_file(folder, f"copy of CORe50 with {self.classes} objects in s1 to s11")
        with reading_data(folder, "folder of CORe50 pictures"):
            images = decode_images(pictures, _CORE_PIXELS)
        return split_held_out(images, np.array(labels, np.int64), np.array(held), self, folder.name)


_TRAIN, _TEST = "20news-bydate-train", "20news-bydate-test"
_GROUPS = (
    "alt.atheism",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
    "misc.forsale",
    "rec.autos",
    "rec.motorcycles",
    "rec.sport.baseball",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "soc.religion.christian",
    "talk.politics.guns",
    "talk.politics.mideast",
    "talk.politics.misc",
    "talk.religion.misc",
)

Message = tuple[bool, str, str]
"""Held out or not, its group, its text."""


class Newsgroups(FileBenchmark):
    """The public archive sorted by date, unpacked or not, or packed lines."""

    def read(self, path: Path) -> Material:
        """Read the messages."""
        with reading_data(path, "copy of 20 Newsgroups (bydate)"):
            messages = list(_messages(path))
        groups = sorted({group for _, group, _ in messages})
        if len(groups) != self.classes:
            raise damaged_file(path, f"copy of 20 Newsgroups with {self.classes} groups")
        labels = np.array([groups.index(group) for _, group, _ in messages], np.int64)
        held = np.array([each for each, _, _ in messages])
        texts = np.array([body_of(text) for _, _, text in messages], dtype=object)
        return split_held_out(texts, labels, held, self, path.name)


def _messages(path: Path) -> Iterator[Message]:
    if path.suffix == ".xz":
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            yield from map(_message, lines)
    elif path.is_dir():
        for file in sorted(path.glob("20news-bydate-*/*/*")):
            group, part = file.parent.name, file.parent.parent.name
            yield part == _TEST, group, file.read_text(encoding="latin-1")
    else:
        yield from _archived(path)


def _message(line: str) -> Message:
    row = json.loads(line)
    part, group, text = row["s"], row["y"], row["t"]
    if part not in ("train", "test") or not isinstance(group, str) or not isinstance(text, str):
        raise ValueError("not a message")
    return part == "test", group, text


def _archived(path: Path) -> Iterator[Message]:
    with tarfile.open(path) as archive:
        for member in archive:
            part, _, rest = member.name.removeprefix("./").partition("/")
            opened = archive.extractfile(member) if member.isfile() else None
            if opened is not None and part in (_TRAIN, _TEST):
                yield part == _TEST, rest.partition("/")[0], opened.read().decode("latin-1")


_PIXELS, _GRAIN = 16, 4
_TURN = 0.35
"""Angle in radians by which a class's pattern turns into another from scenario to scenario."""
_NEW, _AGAIN, _HELD_OUT = 300, 60, 100
"""Samples of a new class, of an old one as it now looks, and held out of each."""
_CONTRAST, _NOISE = 12.0, 60.0


def body_of(message: str) -> str:
    """The text of a message without header, quotations and signature."""
    lines = _without_header(message.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return "\n".join(_without_signature(_without_quotations(lines))).strip()


def _without_header(lines: Sequence[str]) -> Sequence[str]:
    """The header's fields end with the first empty line."""
    if not _FIELD.match(lines[0]):
        return lines
    ends = next((at for at, line in enumerate(lines) if not line.strip()), len(lines))
    return lines[ends + 1 :]


def _without_quotations(lines: Sequence[str]) -> list[str]:
    """The lines without quotations and the lines that introduce them.

    An introduction ends in a colon and contains an address or precedes the quotation directly; if
    it takes two lines, the upper one contains the address.
    """
    kept: list[str] = []
    introduced = False
    for line in reversed(lines):
        marked, bare = bool(_MARKED.match(line)), line.strip()
        addressed = bool(_ADDRESS.search(line))
        naming = not marked and bare.endswith(":") and (introduced or addressed)
        if not marked and not naming and not (introduced and addressed):
            kept.append(line)
        if bare:  # an empty line may stand between an introduction and its quotation
            introduced = marked or naming
    return kept[::-1]


def _without_signature(lines: Sequence[str]) -> Sequence[str]:
    """A message that consists of nothing but a signature is kept."""
    rules = [at for at, line in enumerate(lines) if _RULE.fullmatch(line)]
    for at in rules:
        rest = [line for line in lines[at + 1 :] if line.strip() and not _RULE.fullmatch(line)]
        if len(rest) <= _SIGNATURE_LINES and any(line.strip() for line in lines[:at]):
            return lines[:at]
    return lines


class Synthetic(Benchmark):
    """Each class is a coarse pattern under noise; scenarios also have samples of old classes."""

    def load(self, origin: Origin) -> Material:
        """Generate the samples from the seed."""
        draw = random_stream(origin.seed, Stream.MADE_UP_PICTURES)
        size = (2, self.classes, 3, _GRAIN, _GRAIN)
        patterns = np.kron(draw.normal(size=size), np.ones((_PIXELS // _GRAIN,) * 2))
        train, held = [], []
        for scenario in range(self.scenarios):
            looks = np.cos(_TURN * scenario) * patterns[0] + np.sin(_TURN * scenario) * patterns[1]
            for label in range((scenario + 1) * self.classes_each):
                count = _NEW if self.scenario_of(label) == scenario else _AGAIN
                train.append(_noisy(looks[label], count, label, scenario, draw))
                held.append(_noisy(looks[label], _HELD_OUT, label, scenario, draw))
        return Material(concatenate(train), concatenate(held), f"made from seed {origin.seed}")


def _noisy(
    look: NDArray[np.float64], count: int, label: int, scenario: int, draw: np.random.Generator
) -> Samples:
    noise = draw.normal(size=(count, *look.shape))
    strength = draw.uniform(0.5, 1.5, (count, 1, 1, 1))
    pixels = 128 + strength * _CONTRAST * look + _NOISE * noise
    return Samples(
        pixels.clip(0, 255).astype(np.uint8),
        np.full(count, label, np.int64),
        np.full(count, scenario, np.int64),
    )


BENCHMARKS = (
    Cifar10(
        "nc-cifar-10",
        scenarios=5,
        classes_each=2,
        modality=Modality.IMAGES,
        summary="CIFAR-10, 2 of its 10 classes at a time",
        names=_CIFAR_NAMES,
        files=("cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar10_subset_12k_webp.npz"),
        download="cifar-10-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
    ),
    Core50(
        "nc-core50",
        scenarios=10,
        classes_each=5,
        modality=Modality.IMAGES,
        summary="CORe50 (or 50 classes of Tiny ImageNet in its place), 5 at a time",
        files=("core50_128x128", "tinyimagenet_50class_10k_jpeg.npz"),
        download="core50_128x128.zip from vlomonaco.github.io/core50, unpacked",
    ),
    Newsgroups(
        "nc-20-newsgroups",
        scenarios=10,
        classes_each=2,
        modality=Modality.TEXT,
        summary="20 Newsgroups by date, 2 groups at a time, without headers and quotes",
        names=_GROUPS,
        files=("20news-bydate.tar.gz", "20news-bydate", "20news_bydate_full.jsonl.xz"),
        download="20news-bydate.tar.gz from qwone.com/~jason/20Newsgroups",
    ),
    Synthetic(
        "nc-synthetic",
        scenarios=5,
        classes_each=2,
        modality=Modality.IMAGES,
        summary="made-up pictures, 2 of 10 classes at a time, slowly drifting; no download",
        drifts=True,
    ),
)
