"""Texts as token numbers: words hashed into a fixed vocabulary. Needs no torch.

Newsgroup messages lose the parts that identify the group without being about its topic: header,
quotations with their introduction, and the signature.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 30_522
"""The size of BERT-base's vocabulary."""
TOKENS = 128
CHARACTERS = 512
"""Characters of a text that are read per token: the rest of a very long text is not looked at."""
PADDING, BEGIN = 0, 1
"""Token that fills up short texts; first token of every text."""

_WORD = re.compile(r"[^\W\d_]+|\d+")
_FIELD = re.compile(r"[A-Za-z][\w-]*:")
_MARKED = re.compile(r"\s*(?:\w{0,4}>|[|:](?:\s|$))")
"""Start of a quoted line; some programs put the author's initials before the mark."""
_ADDRESS = re.compile(r"\S@\S")
_RULE = re.compile(r"\s*[-_=*~+#]{2,}\s*")
_SIGNATURE_LINES = 8
"""More lines than this after a rule belong to the message."""


def tokens_of(text: str, length: int = TOKENS) -> NDArray[np.int32]:
    """The first words of a text as token numbers; a word always has the same number."""
    plain = unicodedata.normalize("NFKC", text[: CHARACTERS * length]).casefold()
    words = _WORD.findall(plain)[: length - 1]
    numbers = [2 + zlib.crc32(each.encode()) % (VOCABULARY - 2) for each in words]
    return np.array([BEGIN, *numbers] + [PADDING] * (length - 1 - len(words)), dtype=np.int32)


def all_tokens(texts: Iterable[str], length: int = TOKENS) -> NDArray[np.int32]:
    """One row per text."""
    return np.stack([tokens_of(each, length) for each in texts])


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
