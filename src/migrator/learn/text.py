"""Texts as token numbers, without torch and transformers.

The packaged models read words hashed into a fixed vocabulary. A folder of Hugging Face has its
tokenizer in `tokenizer.json`, which the library `tokenizers` reads alone. Newsgroup messages lose
the parts that identify the group without being about its topic: header, quotations with their
introduction, and the signature.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError

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


HASHED = "hashed words"
"""In place of a tokenizer's path: the words of `text.py`."""

TextEncoder = Callable[[list[str]], NDArray[np.int32]]
"""One row of token numbers per text."""


def text_encoder(tokenizer: str, length: int, padding: int) -> TextEncoder:
    """The encoder of `HASHED` words, or of the tokenizer.json at that path, for rows of `length`.

    `padding`: the token that fills up short texts.
    """
    if tokenizer == HASHED:
        return lambda texts: all_tokens(texts, length)
    library: Any = import_module("tokenizers")  # part of transformers, which built the model
    try:
        read = library.Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises nothing more precise
        raise InputError(
            f"{tokenizer}: no tokenizer can be read there ({error}); save it again"
        ) from error
    read.enable_truncation(length)
    read.enable_padding(length=length, pad_id=padding)

    def encode(texts: list[str]) -> NDArray[np.int32]:
        begins = [each[: CHARACTERS * length] for each in texts]
        rows = [each.ids for each in read.encode_batch(begins)]
        return np.array(rows, np.int32).reshape(len(texts), length)

    return encode


def tokenizer_of(model: type) -> str | None:
    """What `text_encoder` needs to encode for a text model of that class; None: it cannot."""
    if not hasattr(model, "encode"):
        return HASHED
    folder = getattr(getattr(model, "folder", None), "path", None)
    file = None if folder is None else Path(folder) / "tokenizer.json"
    return str(file.absolute()) if file is not None and file.is_file() else None
