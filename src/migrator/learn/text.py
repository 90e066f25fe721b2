"""Texts as token numbers: words hashed into a fixed vocabulary. Needs no torch.

A message of a newsgroup is stripped of what gives its group away without being about it: the
header, what it quotes and who it quotes, and the signature under a ruled line.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 30_522
"""As many as BERT-base has."""
TOKENS = 128
NOTHING, BEGIN = 0, 1
"""Fills a short text; opens every text."""

_WORD = re.compile(r"[^\W\d_]+|\d+")
_FIELD = re.compile(r"[A-Za-z][\w-]*:")
_MARKED = re.compile(r"\s*(?:\w{0,4}>|[|:](?:\s|$))")
"""Begins a line taken from elsewhere; some programs put the writer's initials before the mark."""
_ADDRESS = re.compile(r"\S@\S")
_RULE = re.compile(r"\s*[-_=*~+#]{2,}\s*")
_SIGNATURE_LINES = 8
"""What follows a rule and is longer belongs to the message."""


def tokens_of(text: str, length: int = TOKENS) -> NDArray[np.int32]:
    """The first words of a text as numbers; the same word has the same number everywhere."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = _WORD.findall(plain)[: length - 1]
    numbers = [2 + zlib.crc32(each.encode()) % (VOCABULARY - 2) for each in words]
    return np.array([BEGIN, *numbers] + [NOTHING] * (length - 1 - len(words)), dtype=np.int32)


def all_tokens(texts: Iterable[str], length: int = TOKENS) -> NDArray[np.int32]:
    """One row per text."""
    return np.stack([tokens_of(each, length) for each in texts])


def body_of(message: str) -> str:
    """What the writer of a message says in it."""
    lines = _unheaded(message.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    said = _unsigned(_unquoted(lines))
    return "\n".join(said).strip()


def _unheaded(lines: Sequence[str]) -> Sequence[str]:
    """Without the fields at its top, which end with the first empty line."""
    if not _FIELD.match(lines[0]):
        return lines
    ends = next((at for at, line in enumerate(lines) if not line.strip()), len(lines))
    return lines[ends + 1 :]


def _unquoted(lines: Sequence[str]) -> list[str]:
    """Without quoted lines, and without those that say whose words follow.

    Who is quoted is told in a line that ends in a colon and either has an address or is followed
    by the quotation; where that takes two lines, the upper one has the address.
    """
    kept: list[str] = []
    introduced = False
    for line in reversed(lines):
        marked, bare = bool(_MARKED.match(line)), line.strip()
        addressed = bool(_ADDRESS.search(line))
        naming = not marked and bare.endswith(":") and (introduced or addressed)
        if not marked and not naming and not (introduced and addressed):
            kept.append(line)
        if bare:  # an empty line stands between many a name and its quotation
            introduced = marked or naming
    return kept[::-1]


def _unsigned(lines: Sequence[str]) -> Sequence[str]:
    """Without a signature; a message that is nothing else keeps its words."""
    rules = [at for at, line in enumerate(lines) if _RULE.fullmatch(line)]
    for at in rules:
        rest = [line for line in lines[at + 1 :] if line.strip() and not _RULE.fullmatch(line)]
        if len(rest) <= _SIGNATURE_LINES and any(line.strip() for line in lines[:at]):
            return lines[:at]
    return lines
