"""NC-20-Newsgroups.

Messages lose the parts that identify the group without being about its topic: header, quotations
with their introduction, and the signature.
"""

from __future__ import annotations

import json
import lzma
import re
import tarfile
from collections.abc import Iterator, Sequence
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

_FIELD = re.compile(r"[A-Za-z][\w-]*:")


_MARKED = re.compile(r"\s*(?:\w{0,4}>|[|:](?:\s|$))")
"""Start of a quoted line; some programs put the author's initials before the mark."""


_ADDRESS = re.compile(r"\S@\S")


_RULE = re.compile(r"\s*[-_=*~+#]{2,}\s*")


_SIGNATURE_LINES = 8
"""More lines than this after a rule belong to the message."""


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
        with reading_data(path, "copy of 20 Newsgroups (bydate)"):
            messages = list(_messages(path))
        groups = sorted({group for _, group, _ in messages})
        if len(groups) != self.classes:
            raise damaged_file(path, f"copy of 20 Newsgroups with {self.classes} groups")
        labels = np.array([groups.index(group) for _, group, _ in messages], np.int64)
        held = np.array([held_out for held_out, _, _ in messages])
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


BENCHMARKS = (
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
)
