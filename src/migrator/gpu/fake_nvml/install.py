"""Install the fake below `pynvml` and remove it completely afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from migrator.gpu.drivers.mig import FAKE_NVML
from migrator.gpu.fake_nvml.library import FakeLibrary
from migrator.gpu.fake_nvml.machine import FakeNvml


@contextmanager
def installed(
    folder: Path,
    gpus: Sequence[str] | None = None,
    *,
    mig: bool = True,
    before: Callable[[str], None] | None = None,
) -> Iterator[FakeNvml]:
    """The fake machine of a folder, installed below `pynvml`.

    `before` runs before each call, with its name.
    """
    fake = FakeNvml(folder, gpus, mig=mig)
    binding: Any = pynvml
    cached: dict[str, Any] = binding._nvmlGetFunctionPointer_cache
    library, functions = binding.nvmlLib, dict(cached)
    binding.nvmlLib = FakeLibrary(fake.store, before)
    cached.clear()
    try:
        yield fake
    finally:
        binding.nvmlLib = library
        cached.clear()
        cached.update(functions)


@contextmanager
def from_environment() -> Iterator[FakeNvml | None]:
    """The fake that MIGRATOR_FAKE_NVML names, installed below `pynvml`; None if it is not set."""
    named = os.environ.get(FAKE_NVML)
    if not named:
        yield None
        return
    folder, _, boards = named.partition(":")
    with installed(Path(folder), boards.split(",") if boards else None) as fake:
        yield fake
