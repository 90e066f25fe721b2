"""Profile files of models.

A file holds one measured model, or in version 2 all models of a profiler run. An entry has the
format of core/profiles.json. Version 2 also contains information for readers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from migrator.core.profiles import Profile, profile_of
from migrator.io.data_file import read_json_file
from migrator.io.file_kind import PROFILES
from migrator.io.strict import (
    MAX_COUNT,
    MAX_NUMBER,
    Entry,
    Location,
    Number,
    listed,
    refuse,
    require_version,
    shown,
    validated,
)

VERSION, OF_ONE = 2, 1
"""The profiler writes version 2, a list of profiles. Version 1 is a single profile."""

_Positive = Annotated[float, Field(gt=0, le=MAX_NUMBER, allow_inf_nan=False)]
_BySms = Annotated[dict[str, _Positive], Field(min_length=1)]


class _OverheadEntry(Entry):
    create_s: Number = Field(description="the seconds the driver takes, a number of at least 0")
    start_s: Number = Field(description="the seconds a process takes to start, at least 0")
    load_s: Number = Field(description="the seconds until it has answered on the GPU, at least 0")


class _ProfileEntry(Entry):
    version: Literal[1] = Field(default=1, description=f"the version of the format, {OF_ONE}")
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
    memory_mib: dict[str, _Positive] = Field(
        default_factory=dict, description="the MiB that serving takes at least, by batch"
    )
    training_memory_mib: _Positive | None = Field(
        default=None, description="the MiB that a training takes at least, or null"
    )
    worker_held_mib: dict[str, _Positive] = Field(
        default_factory=dict, description="the MiB that a worker process holds by batch"
    )
    retraining_held_mib: _Positive | None = Field(
        default=None, description="the MiB that a retraining process holds, or null"
    )
    estimate_held_mib: _Positive | None = Field(
        default=None, description="the MiB that the process of an estimate holds, or null"
    )


class _MeasuredEntry(_ProfileEntry):
    """A profile with the profiler's additional information."""

    latency_p95_ms: dict[str, _BySms] = Field(
        default_factory=dict, description="the 95th percentiles, like latency_ms"
    )
    latency_p99_ms: dict[str, _BySms] = Field(
        default_factory=dict, description="the 99th percentiles, like latency_ms"
    )
    training_ms: dict[str, _Positive] = Field(
        default_factory=dict, description="the milliseconds of a training step by SMs"
    )
    overhead_parts_s: dict[str, Number] = Field(
        default_factory=dict, description="the seconds of every part of a start"
    )
    left_out: list[str] = Field(
        default_factory=list, description="a list of sentences on what could not be measured"
    )


class _FileEntry(Entry):
    """Version 2: all profiles of a run."""

    version: Literal[2] = Field(description=f"the version of the format, {VERSION}")
    measured: dict[str, object] = Field(
        default_factory=dict, description="an object that says where, when and with what"
    )
    profiles: list[_MeasuredEntry] = Field(
        min_length=1, description="a list of at least one profile object"
    )


def read_profile(path: Path, model: str | None = None) -> Profile:
    """The profile in a file, or that of `model` if the file contains several.

    Raises InputError with the file, the key and the remedy.
    """

    def chosen(data: object) -> Profile:
        profiles = parse_profiles(data)
        if len(profiles) == 1:
            return profiles[0]
        by_model = {profile.model: profile for profile in profiles}
        if model not in by_model:
            wrong = "which is meant is not said" if model is None else f"none is of {shown(model)}"
            refuse(("profiles",), wrong, f"name {listed(list(by_model))} as model")
        return by_model[str(model)]

    return read_json_file(path, chosen, PROFILES)


def read_profiles(path: Path) -> tuple[Profile, ...]:
    """All profiles in a file."""
    return read_json_file(path, parse_profiles, PROFILES)


def parse_profiles(data: object) -> tuple[Profile, ...]:
    """The profiles in parsed JSON of any version."""
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return (parse_profile(data),)
    file = validated(_FileEntry, data, "the profile file")
    for index, profile in enumerate(file.profiles):
        _require_counts(profile, ("profiles", index))
    return tuple(profile_of(profile.model_dump()) for profile in file.profiles)


def parse_profile(data: object) -> Profile:
    """The profile in parsed JSON."""
    require_version(data, OF_ONE)
    entry = validated(_ProfileEntry, data, "the profile")
    _require_counts(entry, ())
    return profile_of(entry.model_dump())


def _require_counts(entry: _ProfileEntry, location: Location) -> None:
    for batch, by_sms in entry.latency_ms.items():
        _require_count(batch, (*location, "latency_ms", batch), "a batch")
        for sms in by_sms:
            _require_count(sms, (*location, "latency_ms", batch, sms), "a number of SMs")
    for name in ("memory_mib", "worker_held_mib"):
        for batch in getattr(entry, name):
            _require_count(batch, (*location, name, batch), "a batch")


def _require_count(key: str, location: Location, what: str) -> None:
    plain = key.isascii() and key.isdigit() and not key.startswith("0")
    if not plain or len(key) > 10 or int(key) > MAX_COUNT:
        refuse(location, f"{shown(key)} is not {what}", "write a positive integer in quotes")
