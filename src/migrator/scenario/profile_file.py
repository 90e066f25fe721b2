"""A profile file: one measured model, in the layout of an entry of core/profiles.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from migrator.core.profile import Profile
from migrator.core.profiles import profile_of
from migrator.files.json_file import read_json_file
from migrator.files.strict import (
    MAX_COUNT,
    MAX_NUMBER,
    Entry,
    Location,
    Number,
    Parts,
    refuse,
    require_version,
    shown,
    validated,
)

VERSION = 1

_Positive = Annotated[float, Field(gt=0, le=MAX_NUMBER, allow_inf_nan=False)]
_BySms = Annotated[dict[str, _Positive], Field(min_length=1)]


class _OverheadEntry(Entry):
    create_s: Number = Field(description="the seconds the driver takes, a number of at least 0")
    start_s: Number = Field(description="the seconds a process takes to start, at least 0")
    load_s: Number = Field(description="the seconds until it has answered on the GPU, at least 0")


class _ProfileEntry(Entry):
    version: Literal[1] = Field(default=1, description=f"the version of the format, {VERSION}")
    model: str = Field(min_length=1, description="the model's name, as text that is not empty")
    board: str = Field(description='the board it was measured on, such as "H200-141GB"')
    latency_ms: dict[str, _BySms] = Field(
        min_length=1,
        description="the milliseconds of a batch by batch and SMs, "
        'such as {"1": {"16": 1.9, "64": 1.2}}',
    )
    training_ratio: _Positive = Field(
        description="the time of a training step over an inference of as many samples, above 0"
    )
    interference: Number = Field(
        description="the part by which it is slower beside neighbours under MPS, at least 0"
    )
    contention: Number = Field(
        description="the part by which every busy neighbour slows it without partitions, at least 0"
    )
    overhead: _OverheadEntry = Field(description="{create_s, start_s, load_s}")
    provenance: str = Field(description="where the numbers come from, as text")


_PARTS: Parts = {(): _ProfileEntry, ("overhead",): _OverheadEntry}


def read_profile(path: Path) -> Profile:
    """The profile in a file; InputError names the file, the key and the remedy."""
    return read_json_file(path, parse_profile)


def parse_profile(data: object) -> Profile:
    """The profile in JSON that has been read already."""
    require_version(data, VERSION)
    entry = validated(_ProfileEntry, data, _PARTS, "the profile")
    for batch, by_sms in entry.latency_ms.items():
        _require_count(batch, ("latency_ms", batch), "a batch")
        for sms in by_sms:
            _require_count(sms, ("latency_ms", batch, sms), "a number of SMs")
    return profile_of(entry.model_dump())


def _require_count(key: str, location: Location, what: str) -> None:
    plain = key.isascii() and key.isdigit() and not key.startswith("0")
    if not plain or len(key) > 10 or int(key) > MAX_COUNT:
        refuse(location, f"{shown(key)} is not {what}", "write a positive integer in quotes")
