"""A trained Informer in one file: a line that says what it is, a checksum, a header, the weights.

The header is JSON, the weights are plain arrays: reading a file runs nothing that is in it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.forecast.informer.network import Informer, Shape
from migrator.forecast.informer.trained import Summary, TrainedInformer

VERSION = 2
"""2: the ridge regression that is corrected has several levels."""

_KIND = b"migrator informer "
_FIRST = 80
"""The first line is shorter."""


def save(model: TrainedInformer, path: Path) -> None:
    """Write the model; a failure leaves no file that looks whole."""
    header = {
        "shape": model.shape.as_dict(),
        "slot_s": model.slot_s,
        "trust": model.trust,
        "level": "mean of the last window; deviations over it, at least 0.05 of the mean so far",
        "base": "ridge",
        "data_hash": model.data_hash,
        "summary": asdict(model.summary),
    }
    arrays = {name: each.numpy() for name, each in model.network.state_dict().items()}
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    body = json.dumps(header).encode() + b"\n" + packed.getvalue()
    checksum = hashlib.sha256(body).hexdigest().encode()
    _write(path, b"%s%d\n%s\n%s" % (_KIND, VERSION, checksum, body))


def _write(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); name another file"
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def load(path: Path) -> TrainedInformer:
    """The model in a file; InputError where it is none, of another version, or damaged."""
    header, arrays = _parts(path, _content(path))
    try:
        shape = Shape(**header["shape"])
        network = Informer(shape)
        network.load_state_dict({name: torch.from_numpy(each) for name, each in arrays.items()})
        network.eval()
        return TrainedInformer(
            network,
            float(header["slot_s"]),
            float(header["trust"]),
            str(header["data_hash"]),
            Summary(**header["summary"]),
        )
    except (KeyError, TypeError, ValueError, RuntimeError, InputError) as error:
        raise InputError(
            f"{path}: its weights do not fit its header; train the model again"
        ) from error


def _content(path: Path) -> bytes:
    """What follows the checksum, if that is right."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); name a file that "
            "`migrator forecast train` wrote"
        ) from error
    first, _, rest = content.partition(b"\n")
    if not first.startswith(_KIND) or len(first) > _FIRST:
        raise InputError(f"{path}: is no saved model; name one `migrator forecast train` wrote")
    if first != _KIND + str(VERSION).encode():
        said = first[len(_KIND) :].decode(errors="replace")
        raise InputError(
            f"{path}: is of version {said}, and this release reads {VERSION}; train it again"
        )
    checksum, _, body = rest.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        _damaged(path)
    return body


def _parts(path: Path, body: bytes) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Header and weights."""
    header, _, packed = body.partition(b"\n")
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
            return json.loads(header), dict(arrays)
    except (ValueError, OSError, zipfile.BadZipFile, UnicodeDecodeError):
        _damaged(path)


def _damaged(path: Path) -> NoReturn:
    raise InputError(f"{path}: is damaged or cut short; copy it again or train the model again")
