"""mig-parted's configuration files (`version: v1`): the MIG profiles of a named configuration.

`layout_file.py` uses this module. It follows the public rules of the format: an entry applies to
some or all GPUs, optionally filtered by PCI device, and the last matching entry wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from migrator.gpu.drivers.base import Gpu
from migrator.io.strict import Location, listed, nearest, refuse, shown

VERSION = "v1"
_CONFIGS = "mig-configs"
_FILTER, _DEVICES, _ENABLED, _WANTED = "device-filter", "devices", "mig-enabled", "mig-devices"

PCI_DEVICES: Mapping[str, tuple[str, ...]] = {
    "A100-40GB": ("20B0", "20B1", "20F1", "20F6"),
    "A100-80GB": ("20B2", "20B5", "20F3", "20F5"),
    "A30-24GB": ("20B7",),
    "B200-180GB": ("2901",),
    "GB200-186GB": ("2941",),
    "GH200-144GB": ("2348",),
    "H100-80GB-SXM": ("2322", "2324", "2330", "2331"),
    "H100-94GB-NVL": ("2321", "233A"),
    "H100-96GB-GH200": ("2342", "233D"),
    "H20-96GB": ("2329",),
    "H200-141GB": ("2335", "233B"),
    "RTX-PRO-6000-Blackwell-96GB": ("2BB5",),
}
"""Board -> its PCI device numbers as filters name them: 0x20B010DE is 20B0 of vendor 10DE."""


@dataclass(frozen=True)
class Chosen:
    """The configuration of one GPU in the file."""

    counts: Mapping[str, int]
    location: Location
    """Location of `counts` in the file."""
    enabled: bool
    """False if the file disables MIG mode."""


def is_mig_parted(data: object) -> bool:
    """Whether this is a mig-parted file and not a layout file of MIGRator."""
    return isinstance(data, dict) and (_CONFIGS in data or data.get("version") == VERSION)


def chosen(data: object, gpu: Gpu, name: str | None) -> Chosen:
    """The GPU's configuration `name` in the file. A file with one configuration needs no name."""
    entries = _configurations(data)
    every = {each: _entries(entries[each], (_CONFIGS, each)) for each in entries}
    picked = _picked(list(every), name)
    fitting = [each for each in every[picked] if _fits(each, gpu)]
    if not fitting:
        refuse(
            (_CONFIGS, picked),
            f"no entry is for GPU {gpu.index}, {gpu.board.name}",
            "choose another GPU with --gpu, or another name",
        )
    _refuse_compute_instances(fitting[-1].chosen)
    return fitting[-1].chosen


@dataclass(frozen=True)
class _Entry:
    devices: tuple[int, ...] | None
    """None means all GPUs."""
    filters: tuple[str, ...]
    location: Location
    chosen: Chosen


def _configurations(data: object) -> dict[str, object]:
    top = _object(data, (), (("version", _CONFIGS)))
    if top.get("version") != VERSION:
        _refuse_value(("version",), top.get("version"), f'"{VERSION}", as mig-parted has it')
    found = top.get(_CONFIGS)
    if not isinstance(found, dict) or not found:
        _refuse_value((_CONFIGS,), found, "an object with at least one named list")
    return found


def _entries(value: object, location: Location) -> tuple[_Entry, ...]:
    if not isinstance(value, list) or not value:
        _refuse_value(location, value, "a list of at least one entry")
    return tuple(_entry(each, (*location, index)) for index, each in enumerate(value))


def _entry(value: object, location: Location) -> _Entry:
    keys = _object(value, location, (_FILTER, _DEVICES, _ENABLED, _WANTED))
    enabled = keys.get(_ENABLED)
    if not isinstance(enabled, bool):
        _refuse_value((*location, _ENABLED), enabled, "true or false")
    where = (*location, _WANTED)
    counts = _counts(keys.get(_WANTED, None if enabled else {}), where)
    if counts and not enabled:
        refuse(where, "MIG devices are wanted with mig-enabled: false", "say mig-enabled: true")
    return _Entry(
        _devices(keys.get(_DEVICES), (*location, _DEVICES)),
        _filters(keys.get(_FILTER, []), (*location, _FILTER)),
        location,
        Chosen(counts, where, enabled),
    )


def _devices(value: object, location: Location) -> tuple[int, ...] | None:
    if value == "all":
        return None
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        _refuse_value(location, value, "all, or a list of GPUs such as [0, 2]")
    return tuple(value)


def _filters(value: object, location: Location) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        _refuse_value(location, value, 'PCI devices such as "0x20B010DE", one or a list')
    return tuple(texts)


def _counts(value: object, location: Location) -> dict[str, int]:
    if not isinstance(value, dict):
        _refuse_value(location, value, 'MIG profiles such as {"1g.5gb": 7}, or {}')
    for name, count in value.items():
        if type(count) is not int or not 0 <= count <= 100:
            _refuse_value((*location, name), count, "how many, an integer of at least 0")
    return {name: count for name, count in value.items() if count}


def _refuse_compute_instances(wanted: Chosen) -> None:
    """Refuse compute instances in the selected configuration. Other ones may contain them."""
    for name in wanted.counts:
        if "c." in name:
            refuse(
                (*wanted.location, name),
                "several compute instances in one GPU instance are not made here",
                f"use {name.partition('c.')[2]}",
            )


def _picked(names: list[str], name: str | None) -> str:
    if name is None and len(names) == 1:
        return names[0]
    there = listed(names, "and")
    if name is None:
        refuse((_CONFIGS,), f"the file has {there}", "name one as FILE:NAME or with --name")
    if name not in names:
        meant = nearest(name, names)
        hint = f" (did you mean {meant}?)" if meant else ""
        refuse((_CONFIGS,), f"there is no {shown(name)}", f"there are {there}{hint}")
    return name


def _fits(entry: _Entry, gpu: Gpu) -> bool:
    if entry.devices is not None and gpu.index not in entry.devices:
        return False
    if not entry.filters:
        return True
    if gpu.board.name not in PCI_DEVICES:
        refuse(
            (*entry.location, _FILTER),
            f"the PCI device of {gpu.board.name} is not known here",
            "write the entry without the filter",
        )
    ours = {f"0X{each}10DE" for each in PCI_DEVICES[gpu.board.name]}
    return any(each.strip().upper() in ours for each in entry.filters)


def _object(value: object, location: Location, keys: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(value, dict):
        _refuse_value(location, value, f"an object with {listed(keys, 'and')}")
    for each in value:
        if each not in keys:
            meant = nearest(each, keys)
            remedy = f"did you mean {meant}?" if meant else f"the keys are {listed(keys, 'and')}"
            refuse((*location, each), "unknown key", remedy)
    return value


def _refuse_value(location: Location, value: object, wanted: str) -> NoReturn:
    wrong = "the key is missing" if value is None else f"{shown(value)} is not understood"
    refuse(location, wrong, f"give {wanted}")
