"""Finds NaN and infinity in weights, of any model whose `save` writes a safetensors file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from migrator.io.weights_folder import UNREADABLE, safetensors_header

_FLOATS = {
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
    "F32": ("<u4", 0x7F80_0000),
    "F64": ("<u8", 0x7FF0_0000_0000_0000),
}
"""The bits of floating-point types, and those that are all set in NaN and infinity only."""


def tensors_not_finite(path: Path) -> frozenset[str]:
    """Names of the tensors with NaN or infinity in a safetensors file; none for other files."""
    names = set()
    try:
        begin, header = safetensors_header(path)
        content = np.memmap(path, np.uint8, "r")[begin:]
        for name in header.keys() - {"__metadata__"}:
            kind, exponent = _FLOATS.get(header[name]["dtype"], ("", 0))
            first, end = header[name]["data_offsets"]
            if kind and ((content[first:end].view(kind) & exponent) == exponent).any():
                names.add(name)
    except UNREADABLE:
        return frozenset()
    return frozenset(names)
