"""Texts as token numbers: words hashed into a fixed vocabulary, or the tokens of a tokenizer.

The packaged models read hashed words. A folder of Hugging Face has its tokenizer in tokenizer.json,
which the library tokenizers reads alone."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice
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
_PIECE = re.compile(r"\S{1,256}")
"""What is normalized at a time: a run of combining marks takes quadratic time."""
HASHED = "hashed words"
"""In place of a tokenizer's path: the words of `tokens_of`."""
TextEncoder = Callable[[list[str]], NDArray[np.int32]]
"""One row of token numbers per text."""


def tokens_of(text: str, length: int = TOKENS) -> NDArray[np.int32]:
    """The first words of a text as token numbers; a word always has the same number."""
    words = list(islice(_words(text[: CHARACTERS * length]), length - 1))
    numbers = [2 + zlib.crc32(word.encode()) % (VOCABULARY - 2) for word in words]
    return np.array([BEGIN, *numbers] + [PADDING] * (length - 1 - len(words)), dtype=np.int32)


def _words(text: str) -> Iterator[str]:
    for piece in _PIECE.finditer(text):
        yield from _WORD.findall(unicodedata.normalize("NFKC", piece[0]).casefold())


def all_tokens(texts: Iterable[str], length: int = TOKENS) -> NDArray[np.int32]:
    """One row per text."""
    return np.stack([tokens_of(text, length) for text in texts])


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
        begins = [text[: CHARACTERS * length] for text in texts]
        rows = [encoded.ids for encoded in read.encode_batch(begins)]
        return np.array(rows, np.int32).reshape(len(texts), length)

    return encode


def tokenizer_of(model: type) -> str | None:
    """What `text_encoder` needs to encode for a text model of that class; None: it cannot."""
    if not hasattr(model, "encode"):
        return HASHED
    folder = getattr(getattr(model, "folder", None), "path", None)
    file = None if folder is None else Path(folder) / "tokenizer.json"
    return str(file.absolute()) if file is not None and file.is_file() else None
