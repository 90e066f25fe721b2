"""Long texts become tokens in a thread, so that other requests do not wait for them."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray
from starlette.requests import Request

from migrator.core.errors import HttpError
from migrator.core.tensors import DTYPES
from migrator.serving.http.bodies import HeldBody
from migrator.serving.http.protocol import InputTensor
from migrator.serving.http.requests import DisconnectGuard
from migrator.serving.http.tensors import read_input
from migrator.serving.workers.messages import ModelInterface

MAX_ENCODING = 64
"""Requests with long texts that are encoded or wait for it; more are refused."""


class EncodingThread:
    """Encodes the long texts of all requests, one request after the other.

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
        """The tokens of a request's texts, unless its client leaves before its turn.

        HttpError 503 where too many requests wait already.
        """
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
                row_bytes = math.prod(model.shape) * DTYPES[model.datatype].itemsize
                held.add(tensor.shape[0] * row_bytes)
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._executor, read_input, tensor, binary, model)
        finally:
            self._requests -= 1
