"""Arguments as the C library gets them: pointers to fill, handles, numbers.

What ctypes would hand to the real library as garbage, such as a struct by value where a pointer is
due, is a TypeError here: there it is a crash.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

_REFERENCE: Any = type(ctypes.byref(ctypes.c_int()))
_POINTER: Any = type(ctypes.pointer(ctypes.c_int())).__mro__[1]


class Kind(IntEnum):
    """What a handle names."""

    DEVICE = 1
    GPU_INSTANCE = 2
    COMPUTE_INSTANCE = 3
    MIG_DEVICE = 4


_KINDS = {each.value: each for each in Kind}


@dataclass(frozen=True)
class Handle:
    """What stands behind an opaque pointer; `serial` is 0 for a whole GPU."""

    kind: Kind
    gpu: int
    serial: int = 0

    def address(self) -> int:
        """As a pointer that nobody may follow."""
        return self.kind << 44 | self.gpu << 36 | self.serial << 4

    @classmethod
    def of(cls, argument: Any) -> Handle | None:
        """What the caller passed; None for a null pointer or another's."""
        if not isinstance(argument, _POINTER):
            raise TypeError(f"a handle of NVML is due, not {argument!r}")
        address = ctypes.cast(argument, ctypes.c_void_p).value or 0
        kind = _KINDS.get(address >> 44)
        return (
            None if kind is None else cls(kind, address >> 36 & 0xFF, (address & 0xFFFFFFFFF) >> 4)
        )


def number(argument: Any) -> int:
    """An unsigned number, as a Python int or as c_uint."""
    value = getattr(argument, "value", argument)
    if not isinstance(value, int):
        raise TypeError(f"a number is due, not {argument!r}")
    return value


def there(argument: Any) -> int | None:
    """The address a pointer argument points to; None for the null pointer."""
    if argument is None:
        return None
    if isinstance(argument, _REFERENCE):
        return ctypes.addressof(argument._obj)
    if isinstance(argument, ctypes.Array):
        return ctypes.addressof(argument)
    if isinstance(argument, _POINTER):
        return ctypes.cast(argument, ctypes.c_void_p).value
    raise TypeError(f"a pointer is due, not {argument!r} by value: the real library would crash")


def struct(argument: Any, kind: Any) -> Any:
    """The struct that a pointer argument points to, to be filled in place; None for null."""
    address = there(argument)
    return None if address is None else kind.from_address(address)


def put_number(argument: Any, value: int) -> bool:
    """Fills an unsigned number; False for the null pointer."""
    address = there(argument)
    if address is None:
        return False
    ctypes.c_uint.from_address(address).value = value
    return True


def put_handles(argument: Any, handles: list[Handle]) -> bool:
    """Fills an array of handles, or one; False for the null pointer."""
    address = there(argument)
    if address is None:
        return False
    room = ctypes.sizeof(argument) if isinstance(argument, ctypes.Array) else None
    if room is not None and room < len(handles) * ctypes.sizeof(ctypes.c_void_p):
        raise TypeError(f"{len(handles)} handles do not fit into {room} bytes: memory is corrupted")
    slots = (ctypes.c_void_p * len(handles)).from_address(address)
    for index, each in enumerate(handles):
        slots[index] = each.address()
    return True


def put_text(argument: Any, length: int, text: str) -> bool:
    """Fills a buffer of characters; False where the text does not fit."""
    raw = text.encode() + b"\0"
    address = there(argument)
    if address is None or len(raw) > length:
        return False
    ctypes.memmove(address, raw, len(raw))
    return True
