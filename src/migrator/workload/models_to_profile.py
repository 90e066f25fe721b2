"""The models of a scenario, for the profiler; arrivals and profiles may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.registry import FORM, is_import_path, parts_of
from migrator.io.data_file import beside, read_yaml_file
from migrator.io.file_kind import CLUSTER, SCENARIO
from migrator.io.strict import refuse, shown
from migrator.workload.entries import LiveTenantEntry, TenantEntry, scenario_entry
from migrator.workload.file import short_name
from migrator.workload.profile_file import read_profile


@dataclass(frozen=True)
class ModelToProfile:
    """A tenant's model and its service requirements."""

    tenant: str
    model: str
    slo_s: float
    batch: int
    pixels: int | None = None
    """Side of the network's images; None: the model's own."""
    input_pixels: int | None = None
    """Side of the images that clients send; None: that of the network."""


def read_models(path: Path) -> tuple[Board, list[ModelToProfile]]:
    """The board and the models of a scenario file. Arrivals and profiles may be missing."""
    return read_yaml_file(path, partial(_models, folder=path.parent), SCENARIO, CLUSTER)


def _models(data: object, *, folder: Path) -> tuple[Board, list[ModelToProfile]]:
    file = scenario_entry(data)
    models: list[ModelToProfile] = []
    for index, tenant in enumerate(file.tenants):
        model = tenant.model or _measured_model(tenant, index, folder)
        if is_import_path(model) and parts_of(model) is None:
            refuse(
                ("tenants", index, "model"),
                f"{shown(model)} is no import path",
                f"write {FORM}",
            )
        name = tenant.name or short_name(model)
        live = tenant.live or LiveTenantEntry()
        served = ModelToProfile(
            name, model, tenant.slo_ms / 1e3, tenant.batch, live.pixels, live.input_pixels
        )
        _require_one_size([*models, served], index)
        models.append(served)
    return catalogue.board(file.gpu), models


def _require_one_size(served: Sequence[ModelToProfile], index: int) -> None:
    """A profile is of a model with images of one size; tenants that share it must agree."""
    last = served[-1]
    for key in ("pixels", "input_pixels"):
        for other in served:
            if other.model == last.model and getattr(other, key) != getattr(last, key):
                refuse(
                    ("tenants", index, "live", key),
                    f"{other.tenant} has the same model with images of another size",
                    "give both one size, or measure them with two scenarios",
                )


def _measured_model(entry: TenantEntry, index: int, folder: Path) -> str:
    location = ("tenants", index)
    if entry.profile is None:
        refuse((*location, "model"), "the key is missing", "name the model to measure")
    return read_profile(beside(folder, entry.profile, (*location, "profile"))).model
