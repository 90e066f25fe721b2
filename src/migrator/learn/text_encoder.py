"""Texts as token numbers in a process without torch and transformers, as a served model reads them.

The packaged models read hashed words. A folder of Hugging Face has its tokenizer in
`tokenizer.json`, which the library `tokenizers` reads alone.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.learn.text import CHARACTERS, all_tokens

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
