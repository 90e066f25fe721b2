"""Long texts become tokens in a thread, so that other requests do not wait for them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from migrator.core.errors import HttpError
from migrator.core.tensors import DTYPES
from migrator.serving.http.bodies import HeldBody
from migrator.serving.http.protocol import InputTensor
from migrator.serving.http.requests import DisconnectGuard
from migrator.serving.http.tensors import read_texts
from migrator.serving.workers.messages import ModelInterface

MAX_ENCODING = 64
"""Requests with long texts that are encoded or wait for it; more are refused."""
_ROWS_AT_ONCE = 128
_CHARACTERS_AT_ONCE = 2**16
"""What is encoded for one request before others have their turn; one text is never divided."""

_R = TypeVar("_R")


class EncodingThread:
    """Encodes the long texts of all requests in turns, until their client leaves.

    A single thread: encoders in Python hold the interpreter's lock, and with every further thread
    the event loop would wait longer for it.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "texts")
        self._requests = 0

    async def encode(
        self,
        request: Request,
        held: HeldBody,
        tensor: InputTensor,
        binary: memoryview,
        model: ModelInterface,
    ) -> NDArray[Any]:
        """The tokens of a request's texts; HttpError 503 where too many requests wait already."""
        assert model.encode is not None
        if self._requests >= MAX_ENCODING:
            raise HttpError(
                503,
                f"inputs: texts of {self._requests} other requests are being encoded; try again in "
                "some seconds, or send shorter texts",
                retry_after_s=1,
            )
        self._requests += 1
        try:
            with DisconnectGuard(request):
                texts = await self._run(read_texts, tensor, binary, model.name)
                dtype = DTYPES[model.datatype]
                held.add(len(texts) * math.prod(model.shape) * dtype.itemsize)
                tokens = np.empty((len(texts), *model.shape), dtype)
                for rows in _slices(texts):
                    tokens[rows] = await self._run(model.encode, texts[rows])
                return tokens
        finally:
            self._requests -= 1

    async def _run(self, function: Callable[..., _R], *args: object) -> _R:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def _slices(texts: list[str]) -> Iterator[slice]:
    first = characters = 0
    for row, text in enumerate(texts):
        characters += len(text)
        if row - first == _ROWS_AT_ONCE or (row > first and characters > _CHARACTERS_AT_ONCE):
            yield slice(first, row)
            first, characters = row, len(text)
    if first < len(texts):
        yield slice(first, len(texts))
