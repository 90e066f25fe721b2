"""What `drivers.py` measured, judged: the board as packaged, and shares that really limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from migrator.core.catalogue import Board, MigProfile, Place

TOLERANCE = 1.10
"""How much more than its part of the GPU a share may do."""


@dataclass(frozen=True)
class Product:
    """What one process measured in its share."""

    profile: str
    sms: int
    """What the share should have."""
    percentage: str
    sms_seen: int
    tflops: float
    clock_mhz: float | None
    """While it computed; a share that needs less power may run at a higher clock."""
    beside: str | None = None


def sizes(board: Board) -> list[MigProfile]:
    """The profiles that differ in SMs, smallest first."""
    plain = [profile for profile in board.profiles if not profile.has_suffix]
    return sorted(plain, key=lambda value: (value.gpcs, value.memory_slices))


def pair(board: Board) -> list[Place]:
    """The two that fill the board side by side: 4g at the bottom, 3g at the top."""
    half = board.compute_slices // 2
    low, high = (board.plain_profiles[size] for size in (board.compute_slices - half, half))
    return [Place(min(low.starts), low.name), Place(max(high.starts), high.name)]


def differences(read: Board, packaged: Board) -> list[str]:
    """Everything in which the board differs from its entry in the catalogue."""
    differences = [
        f"{name}: read {getattr(read, name)}, packaged {getattr(packaged, name)}"
        for name in ("name", "compute_slices", "memory_slices")
        if getattr(read, name) != getattr(packaged, name)
    ]
    ours = {profile.name: profile for profile in packaged.profiles}
    theirs = {profile.name: profile for profile in read.profiles}
    differences += [f"{name}: not packaged" for name in theirs if name not in ours]
    differences += [f"{name}: packaged, not read" for name in ours if name not in theirs]
    for name in theirs.keys() & ours.keys():
        for field in fields(MigProfile):
            one, other = getattr(theirs[name], field.name), getattr(ours[name], field.name)
            if one != other:
                differences.append(f"{name}: {field.name} read {one}, packaged {other}")
    return sorted(differences)


def part_tflops(share: Product, whole: Product) -> float:
    """The share's part of the whole GPU's rate, at the share's clock where both are known."""
    clocks = 1.0
    if share.clock_mhz and whole.clock_mhz:
        clocks = share.clock_mhz / whole.clock_mhz
    return whole.tflops * share.sms / whole.sms * clocks


def faults(alone: Sequence[Product], together: Sequence[Product]) -> list[str]:
    """Where limits do not hold: SMs as promised, more for more, no more than the share's part."""
    by_size = sorted(alone, key=lambda product: product.sms)
    whole = by_size[-1]
    differences = [
        f"{product.profile}: sees {product.sms_seen} SMs, not {product.sms}"
        for product in (*by_size, *together)
        if product.sms_seen != product.sms
    ]
    for less, more in pairwise(by_size):
        if more.tflops <= less.tflops and more.sms > less.sms:
            differences.append(
                f"{more.profile}: {more.tflops:.1f} TFLOP/s, no more than {less.profile} has"
            )
    for product in (*by_size, *together):
        part = part_tflops(product, whole)
        if product.tflops > TOLERANCE * part:
            differences.append(
                f"{product.profile}: {product.tflops:.1f} TFLOP/s, its part would be {part:.1f}"
            )
    return differences


def table(products: Sequence[Product]) -> Iterator[str]:
    """One line per measurement."""
    whole = max(products, key=lambda product: product.sms)
    yield (
        f"{'share':<12}{'%':>6}{'SMs':>5}{'seen':>6}{'TFLOP/s':>9}{'of part':>9}{'MHz':>6}  beside"
    )
    for product in products:
        clock = "-" if product.clock_mhz is None else f"{product.clock_mhz:.0f}"
        yield (
            f"{product.profile:<12}{product.percentage:>6}{product.sms:>5}{product.sms_seen:>6}"
            f"{product.tflops:>9.1f}{product.tflops / part_tflops(product, whole):>9.2f}{clock:>6}"
            f"  {product.beside or '-'}"
        )
