"""NC-20-Newsgroups: two of twenty groups in each of ten scenarios; headers and quotes removed."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from migrator.learn.benchmarks.benchmark import (
    FileBenchmark,
    Material,
    damaged_file,
    reading_data,
    split_held_out,
)
from migrator.learn.model import Modality
from migrator.learn.text import body_of

_TRAIN, _TEST = "20news-bydate-train", "20news-bydate-test"

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


BENCHMARKS = (
    Newsgroups(
        "nc-20-newsgroups",
        scenarios=10,
        classes_each=2,
        modality=Modality.TEXT,
        summary="20 Newsgroups by date, 2 groups at a time, without headers and quotes",
        files=("20news-bydate.tar.gz", "20news-bydate", "20news_bydate_full.jsonl.xz"),
        download="20news-bydate.tar.gz from qwone.com/~jason/20Newsgroups",
    ),
)
