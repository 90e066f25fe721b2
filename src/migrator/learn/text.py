"""Texts as token numbers: lower-case words hashed into a fixed vocabulary. Needs no torch."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 30_522
"""As many as BERT-base has."""
TOKENS = 128
NOTHING, BEGIN = 0, 1
"""Fills a short text; opens every text."""

_WORD = re.compile(r"[a-z]+|[0-9]+")
_QUOTED = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>)")


def tokens_of(text: str, length: int = TOKENS) -> NDArray[np.int32]:
    """The first words of a text as numbers; the same word has the same number everywhere."""
    words = _WORD.findall(text.lower())[: length - 1]
    numbers = [2 + zlib.crc32(each.encode()) % (VOCABULARY - 2) for each in words]
    return np.array([BEGIN, *numbers] + [NOTHING] * (length - 1 - len(words)), dtype=np.int32)


def all_tokens(texts: Iterable[str], length: int = TOKENS) -> NDArray[np.int32]:
    """One row per text."""
    return np.stack([tokens_of(each, length) for each in texts])


def body_of(message: str) -> str:
    """A message without its header, without what it quotes, and without its signature."""
    _, _, body = message.partition("\n\n")
    lines = [line for line in body.split("\n") if not _QUOTED.search(line)]
    text = "\n".join(lines).strip()
    # a signature is a short last part under a line that is empty or made of dashes
    parts = text.split("\n")
    for at in range(len(parts) - 1, -1, -1):
        if not parts[at].strip(" -"):
            return "\n".join(parts[:at]) if at > 0 else text
    return text
