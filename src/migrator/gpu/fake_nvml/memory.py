"""Arguments as the C library receives them: output pointers, handles, numbers.

An argument that would crash the real library, such as a struct by value instead of a pointer,
raises TypeError here.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

_REFERENCE: Any = type(ctypes.byref(ctypes.c_int()))
_POINTER: Any = type(ctypes.pointer(ctypes.c_int())).__mro__[1]


class Kind(IntEnum):
    """Kind of object that a handle identifies."""

    DEVICE = 1
    GPU_INSTANCE = 2
    COMPUTE_INSTANCE = 3
    MIG_DEVICE = 4


_KINDS = {each.value: each for each in Kind}


@dataclass(frozen=True)
class Handle:
    """The object behind an opaque pointer. `serial` is 0 for a whole GPU."""

    kind: Kind
    gpu: int
    serial: int = 0

    def address(self) -> int:
        """The handle as a pointer that must not be dereferenced."""
        return self.kind << 44 | self.gpu << 36 | self.serial << 4

    @classmethod
    def of(cls, argument: Any) -> Handle | None:
        """The handle that the caller passed; None for a null pointer or an unknown handle."""
        if not isinstance(argument, _POINTER):
            raise TypeError(f"a handle of NVML is due, not {argument!r}")
        address = ctypes.cast(argument, ctypes.c_void_p).value or 0
        kind = _KINDS.get(address >> 44)
        return (
            None if kind is None else cls(kind, address >> 36 & 0xFF, (address & 0xFFFFFFFFF) >> 4)
        )


def number(argument: Any) -> int:
    """An unsigned number, from a Python int or a c_uint."""
    value = getattr(argument, "value", argument)
    if not isinstance(value, int):
        raise TypeError(f"a number is due, not {argument!r}")
    return value


def there(argument: Any) -> int | None:
    """The address in a pointer argument; None for the null pointer."""
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
    """The struct behind a pointer argument, to be filled in place; None for the null pointer."""
    address = there(argument)
    return None if address is None else kind.from_address(address)


def put_number(argument: Any, value: int) -> bool:
    """Write an unsigned number; return False for the null pointer."""
    address = there(argument)
    if address is None:
        return False
    ctypes.c_uint.from_address(address).value = value
    return True


def put_handles(argument: Any, handles: list[Handle]) -> bool:
    """Write an array of handles, or one handle; return False for the null pointer."""
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
    """Write text to a character buffer; return False if the text does not fit."""
    raw = text.encode() + b"\0"
    address = there(argument)
    if address is None or len(raw) > length:
        return False
    ctypes.memmove(address, raw, len(raw))
    return True
