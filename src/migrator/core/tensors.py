"""Named tensors: their types as the Open Inference Protocol names them, and batches as records.

A batch of named tensors is one numpy array of records: a field per tensor, a record per row.
Queues, files and processes handle it like any other batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}
"""By the protocol's name of the datatype."""
_MAX_NAME, _MAX_DIMENSIONS, _MAX_ROW_BYTES = 128, 7, 2**26


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor of a model; `shape` is that of one row, without the batch axis."""

    name: str
    datatype: str
    """BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32 or FP64."""
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """InputError unless name, datatype and shape are usable."""
        if not isinstance(self.name, str) or not 0 < len(self.name) <= _MAX_NAME:
            raise InputError(f"tensor: {self.name!r:.80} is not a name of 1 to {_MAX_NAME} letters")
        if self.datatype not in DTYPES:
            raise InputError(
                f"tensor {self.name}: there is no datatype {self.datatype!r:.80}; use one of "
                f"{', '.join(DTYPES)}"
            )
        object.__setattr__(self, "shape", tuple(self.shape))
        if len(self.shape) > _MAX_DIMENSIONS or not all(
            isinstance(size, int) and size > 0 for size in self.shape
        ):
            raise InputError(
                f"tensor {self.name}: its shape is {self.shape}; give up to {_MAX_DIMENSIONS} "
                "sizes of 1 or more, without the batch axis"
            )
        if math.prod(self.shape) * self.dtype.itemsize > _MAX_ROW_BYTES:
            raise InputError(
                f"tensor {self.name}: a row has more than {_MAX_ROW_BYTES >> 20} MiB; make it "
                "smaller"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        return DTYPES[self.datatype]


def record_dtype(specs: Sequence[TensorSpec]) -> np.dtype[Any]:
    """The type of one row of these tensors."""
    return np.dtype([(spec.name, spec.dtype, spec.shape) for spec in specs])


def to_records(columns: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """One record per row of the arrays, which have equally many rows."""
    fields = [(name, column.dtype, column.shape[1:]) for name, column in columns.items()]
    records = np.empty(len(next(iter(columns.values()))), np.dtype(fields))
    for name, column in columns.items():
        records[name] = column
    return records


def to_columns(records: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The tensors of a batch by name, each contiguous."""
    return {name: np.ascontiguousarray(records[name]) for name in records.dtype.names or ()}


def has_nan(rows: NDArray[Any]) -> Any:
    """Which rows, plain or records, contain NaN."""
    if rows.dtype.names is not None:
        invalid = np.zeros(len(rows), np.bool_)
        for name in rows.dtype.names:
            invalid |= has_nan(rows[name])
        return invalid
    if rows.dtype.kind != "f":
        return np.zeros(len(rows), np.bool_)
    return np.isnan(rows).any(axis=tuple(range(1, rows.ndim)))


def dtype_text(dtype: np.dtype[Any]) -> str:
    """The type as text, also that of records."""
    return dtype.str if dtype.names is None else json.dumps(dtype.descr)


def dtype_of(text: str) -> np.dtype[Any]:
    """The type that `dtype_text` wrote. Raises ValueError or TypeError for anything else."""
    return np.dtype(_fields(json.loads(text))) if text.startswith("[") else np.dtype(text)


def _fields(described: Any) -> list[tuple[Any, ...]]:
    return [
        (name, _fields(kind) if isinstance(kind, list) else kind, *map(tuple, shape))
        for name, kind, *shape in described
    ]
