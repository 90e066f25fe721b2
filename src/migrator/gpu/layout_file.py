"""The layout file, version 1: from YAML (or JSON, or a mig-parted file) to a `Layout`, and back.

`migrator gpu apply` and `assert` read it, `export` writes it. This module checks each key
separately; `layout.py` checks whether all instances fit on the board together.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pydantic import Field

from migrator.core.catalogue import Board, MigProfile, Place, boards
from migrator.core.errors import InputError
from migrator.gpu.drivers.base import Gpu
from migrator.gpu.layout import Layout, arrangements
from migrator.io.data_file import read_yaml_file
from migrator.io.file_kind import LAYOUT
from migrator.io.strict import (
    Count,
    Entry,
    Location,
    Position,
    listed,
    nearest,
    refuse,
    require_version,
    shown,
    validated,
)

VERSION = 1
NEVER_OFF = (
    "The file wants MIG mode off; MIGRator never switches it off and takes this as no instances."
)
PARTED_VERSION = "v1"
_CONFIGS = "mig-configs"
PCI_DEVICES: Mapping[str, tuple[str, ...]] = {
    "A100-40GB": ("20B0", "20B1", "20F1", "20F6"),
    "A100-80GB": ("20B2", "20B5", "20F3", "20F5"),
    "A30-24GB": ("20B7",),
    "B200-180GB": ("2901",),
    "B300-269GB": ("3182",),
    "GB200-186GB": ("2941",),
    "GB300-278GB": ("31C2",),
    "GH200-144GB": ("2348",),
    "H100-80GB-PCIe": ("2322", "2331"),
    "H100-80GB-SXM": ("2324", "2330"),
    "H100-94GB-NVL": ("2321", "233A"),
    "H100-96GB-GH200": ("2342", "233D"),
    "H20-96GB": ("2329",),
    "H200-141GB": ("2335", "233B"),
    "RTX-PRO-5000-Blackwell-48GB": ("2BB3",),
    "RTX-PRO-6000-Blackwell-96GB": ("2BB5",),
}
"""Board -> its PCI device numbers as filters name them: 0x20B010DE is 20B0 of vendor 10DE."""


class _LayoutInstanceEntry(Entry):
    profile: str | None = Field(default=None, description='a MIG profile, such as "3g.20gb"')
    gpcs: Count | None = Field(default=None, description="a size in GPCs, an integer of at least 1")
    start: Position | None = Field(
        default=None, description="its first memory slice, an integer of at least 0"
    )
    count: Count | None = Field(
        default=None, description="how many of them, wherever they fit, an integer of at least 1"
    )


class _LayoutEntry(Entry):
    version: int = Field(description=f"the version of the format, {VERSION}")
    gpu: str | None = Field(
        default=None, description='the name of a board, such as "A100-40GB", or leave it out'
    )
    instances: list[_LayoutInstanceEntry] = Field(
        description="a list such as [{profile: 3g.20gb, start: 4}], or [] for the empty GPU"
    )


@dataclass(frozen=True)
class LayoutFile:
    """The layout in a file, with notes for the user."""

    layout: Layout
    notes: tuple[str, ...] = ()


def read_layout(given: str, gpu: Gpu) -> LayoutFile:
    """The layout for this GPU in the file `given`, or in `FILE:NAME` of a mig-parted file."""
    path, name = _path_and_name(given)
    return read_yaml_file(path, partial(parse_layout, gpu=gpu, name=name), LAYOUT)


def describe_layout(path: Path) -> str:
    """The boards on which a layout is possible, or the names in a mig-parted file.

    Raises InputError if no board has it.
    """
    return read_yaml_file(path, _described, LAYOUT)


def _described(data: object) -> str:
    if isinstance(data, dict) and _is_mig_parted(data):
        return f"mig-parted's format with {listed(list(data['mig-configs']), last='and')}"
    file = _validated(data, boards())
    asked = boards() if file.gpu is None else {file.gpu: boards()[file.gpu]}
    possible, refused = [], []
    for name, board in asked.items():
        try:
            _possible(_layout(file.instances, board), board)
            possible.append(name)
        except InputError as error:
            refused.append(error)
    if not possible:
        raise refused[0]
    return f"for {listed(possible)}"


def parse_layout(data: object, gpu: Gpu, name: str | None = None) -> LayoutFile:
    """The layout in parsed YAML."""
    if _is_mig_parted(data):
        return _parse_mig_parted(data, gpu, name)
    if name is not None:
        raise InputError(
            f"a layout file of MIGRator has no names inside, but {shown(name)} was given; leave "
            "the name out"
        )
    file = _validated(data, [*boards(), gpu.board.name])
    if file.gpu is not None and file.gpu != gpu.board.name:
        refuse(
            ("gpu",),
            f"the layout is for {file.gpu}, but GPU {gpu.index} is {gpu.board.name}",
            "choose another GPU with --gpu, or give a layout for this one",
        )
    return LayoutFile(_possible(_layout(file.instances, gpu.board), gpu.board))


def layout_to_json(board: Board, places: Iterable[Place]) -> dict[str, object]:
    """The layout as a JSON object, from which `parse_layout` restores the same layout."""
    entries = [{"profile": place.profile, "start": place.start} for place in sorted(places)]
    return {"version": VERSION, "gpu": board.name, "instances": entries}


def layout_to_yaml(board: Board, places: Iterable[Place]) -> str:
    """The layout as YAML, one instance per line."""
    entries = [f"  - {{profile: {_text(p.profile)}, start: {p.start}}}" for p in sorted(places)]
    instances = ["instances:", *entries] if entries else ["instances: []"]
    return "\n".join([f"version: {VERSION}", f"gpu: {_text(board.name)}", *instances]) + "\n"


def _text(word: str) -> str:
    """A YAML scalar: usual names plain, others quoted. A driver may report any name for a board."""
    plain = re.fullmatch(r"\d+g\.[\w.+-]+|[A-Z][\w-]+", word, re.ASCII)
    return word if plain else json.dumps(word)


def _path_and_name(given: str) -> tuple[Path, str | None]:
    """FILE or FILE:NAME. A colon in the name of an existing file belongs to the file."""
    path, colon, name = given.rpartition(":")
    if not given.strip() or "\0" in given:
        raise InputError("LAYOUT: no file is named; give a layout file, such as layout.yaml")
    if not colon or not path or Path(given).exists():
        return Path(given), None
    if not name:
        raise InputError(f"LAYOUT: {given!r} ends with a colon; give FILE or FILE:NAME")
    return Path(path), name


def _validated(data: object, known: Collection[str]) -> _LayoutEntry:
    """The layout in MIGRator's own format, for any board or one that is known."""
    if isinstance(data, dict) and data.get("kind") == "ConfigMap":
        refuse(
            ("kind",),
            "this is a Kubernetes ConfigMap",
            "give the file that it holds under data, config.yaml for example",
        )
    require_version(data, VERSION)
    file = validated(_LayoutEntry, data, "the layout", "YAML")
    if file.gpu is not None and file.gpu not in known:
        meant = nearest(file.gpu, known)
        remedy = f"did you mean {meant}?" if meant else "`migrator boards` lists them"
        refuse(("gpu",), f"there is no board {shown(file.gpu)}", remedy)
    return file


def _layout(entries: list[_LayoutInstanceEntry], board: Board) -> Layout:
    places: list[Place] = []
    counts: Counter[str] = Counter()
    for index, entry in enumerate(entries):
        location: Location = ("instances", index)
        profile = _profile(entry, location, board)
        if entry.start is None:
            counts[profile.name] += entry.count or 1
        else:
            places.append(_place(entry, entry.start, profile, location, board))
    return Layout(tuple(places), dict(counts))


def _possible(layout: Layout, board: Board) -> Layout:
    next(arrangements(board, layout))  # raises for a layout that never fits on this board
    return layout


def _profile(entry: _LayoutInstanceEntry, location: Location, board: Board) -> MigProfile:
    if (entry.profile is None) == (entry.gpcs is None):
        both = "both profile and gpcs are given" if entry.gpcs else "neither profile nor gpcs"
        refuse(location, both, 'give one of them, such as profile: "3g.20gb" or gpcs: 3')
    if entry.gpcs is not None:
        if entry.gpcs not in board.plain_profiles:
            refuse(
                (*location, "gpcs"),
                f"{board.name} has no instance of {entry.gpcs} GPCs",
                f"use {listed(board.sizes)}",
            )
        return board.plain_profiles[entry.gpcs]
    return _named_profile(str(entry.profile), (*location, "profile"), board)


def _named_profile(name: str, location: Location, board: Board) -> MigProfile:
    names = [profile.name for profile in board.profiles]
    if name not in names:
        # Users remember the size, and confuse the memory with that of another board.
        same_size = [other for other in names if other.partition("g")[0] == name.partition("g")[0]]
        meant = nearest(name, same_size or names)
        hint = f" (did you mean {meant}?)" if meant else ""
        refuse(
            location,
            f"{board.name} has no MIG profile {shown(name)}",
            f"use {listed(names)}{hint}",
        )
    return board.profile(name)


def _place(
    entry: _LayoutInstanceEntry, start: int, profile: MigProfile, location: Location, board: Board
) -> Place:
    if entry.count is not None:
        refuse(
            (*location, "count"),
            "an instance with a start is one instance",
            "leave out count, or leave out start",
        )
    if start not in profile.starts:
        refuse(
            (*location, "start"),
            f"{board.name} has no {profile.name} at slice {start}",
            f"use {listed(sorted(profile.starts))}",
        )
    return Place(start, profile.name)


# mig-parted's configuration files.


@dataclass(frozen=True)
class _PartedEntry:
    """An entry of a mig-parted configuration. `devices` None means all GPUs."""

    devices: list[int] | None
    filters: list[str]
    enabled: bool
    counts: Mapping[str, int]
    location: Location


def _is_mig_parted(data: object) -> bool:
    return isinstance(data, dict) and (_CONFIGS in data or data.get("version") == PARTED_VERSION)


def _parse_mig_parted(data: object, gpu: Gpu, name: str | None) -> LayoutFile:
    """The GPU's configuration `name`. A file with one configuration needs no name.

    An entry applies to some or all GPUs, optionally filtered by PCI device, and the last matching
    entry wins.
    """
    top = _object(data, (), ("version", _CONFIGS))
    version, configs = top.get("version"), top.get(_CONFIGS)
    if version != PARTED_VERSION:
        _refuse_value(("version",), version, f'"{PARTED_VERSION}", as mig-parted has it')
    if not isinstance(configs, dict) or not configs:
        _refuse_value((_CONFIGS,), configs, "an object with at least one named list")
    every = {config: _parted_entries(configs[config], (_CONFIGS, config)) for config in configs}
    picked = _picked(list(every), name)
    fitting = [entry for entry in every[picked] if _fits(entry, gpu)]
    if not fitting:
        refuse(
            (_CONFIGS, picked),
            f"no entry is for GPU {gpu.index}, {gpu.board.name}",
            "choose another GPU with --gpu, or another name",
        )
    entry = fitting[-1]
    for count in entry.counts:
        location = (*entry.location, "mig-devices", count)
        if "c." in count:
            refuse(
                location,
                "several compute instances in one GPU instance are not made here",
                f"use {count.partition('c.')[2]}",
            )
        _named_profile(count, location, gpu.board)
    notes = () if entry.enabled else (NEVER_OFF,)
    return LayoutFile(_possible(Layout((), entry.counts), gpu.board), notes)


def _parted_entries(value: object, location: Location) -> list[_PartedEntry]:
    if not isinstance(value, list) or not value:
        _refuse_value(location, value, "a list of at least one entry")
    return [_parted_entry(entry, (*location, index)) for index, entry in enumerate(value)]


def _parted_entry(value: object, location: Location) -> _PartedEntry:
    keys = _object(value, location, ("device-filter", "devices", "mig-enabled", "mig-devices"))

    def require(valid: bool, key: str, wanted: str) -> None:
        if not valid:
            _refuse_value((*location, key), keys.get(key), wanted)

    devices, enabled = keys.get("devices"), keys.get("mig-enabled")
    if devices != "all":
        numbers = devices if isinstance(devices, list) else [None]
        valid = all(type(number) is int and number >= 0 for number in numbers)
        require(valid, "devices", "all, or a list of GPUs such as [0, 2]")
    require(isinstance(enabled, bool), "mig-enabled", "true or false")
    filters = keys.get("device-filter", [])
    filters = [filters] if isinstance(filters, str) else filters
    require(
        isinstance(filters, list) and all(isinstance(number, str) for number in filters),
        "device-filter",
        'PCI devices such as "0x20B010DE", one or a list',
    )
    counts = keys.get("mig-devices", None if enabled else {})
    wanted = 'MIG profiles such as {"1g.5gb": 7}, or {}'
    if not isinstance(counts, dict):
        _refuse_value((*location, "mig-devices"), counts, wanted)
    for name, count in counts.items():
        if type(count) is not int or not 0 <= count <= 100:
            where = (*location, "mig-devices", name)
            _refuse_value(where, count, "how many, an integer of at least 0")
    if any(counts.values()) and not enabled:
        where = (*location, "mig-devices")
        refuse(where, "MIG devices are wanted with mig-enabled: false", "say mig-enabled: true")
    return _PartedEntry(
        None if devices == "all" else devices,
        filters,
        bool(enabled),
        {name: count for name, count in counts.items() if count},
        location,
    )


def _picked(names: list[str], name: str | None) -> str:
    if name is None and len(names) == 1:
        return names[0]
    there = listed(names, "and")
    if name is None:
        refuse((_CONFIGS,), f"the file has {there}", "name one as FILE:NAME")
    if name not in names:
        meant = nearest(name, names)
        hint = f" (did you mean {meant}?)" if meant else ""
        refuse((_CONFIGS,), f"there is no {shown(name)}", f"there are {there}{hint}")
    return name


def _fits(entry: _PartedEntry, gpu: Gpu) -> bool:
    if entry.devices is not None and gpu.index not in entry.devices:
        return False
    if not entry.filters:
        return True
    if gpu.board.name not in PCI_DEVICES:
        refuse(
            (*entry.location, "device-filter"),
            f"the PCI device of {gpu.board.name} is not known here",
            "write the entry without the filter",
        )
    ours = {f"0X{device}10DE" for device in PCI_DEVICES[gpu.board.name]}
    return any(device_filter.strip().upper() in ours for device_filter in entry.filters)


def _object(value: object, location: Location, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse_value(location, value, f"an object with {listed(keys, 'and')}")
    for key in value:
        if key not in keys:
            meant = nearest(key, keys)
            remedy = f"did you mean {meant}?" if meant else f"the keys are {listed(keys, 'and')}"
            refuse((*location, key), "unknown key", remedy)
    return value


def _refuse_value(location: Location, value: object, wanted: str) -> NoReturn:
    wrong = "the key is missing" if value is None else f"{shown(value)} is not understood"
    refuse(location, wrong, f"give {wanted}")
