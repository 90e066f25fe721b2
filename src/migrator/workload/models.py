"""What a scenario serves, for the profiler: models that may have no profile yet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.import_path import FORM, parts_of
from migrator.io.strict import refuse, require_version, shown, validated
from migrator.io.text_file import beside
from migrator.io.yaml_file import read_yaml_file
from migrator.workload.entries import PARTS, VERSION, ScenarioEntry, TenantEntry
from migrator.workload.profile_file import read_profile


@dataclass(frozen=True)
class ServedModel:
    """A tenant's model and what is asked of it."""

    tenant: str
    model: str
    slo_s: float
    batch: int


def read_models(path: Path) -> tuple[Board, list[ServedModel]]:
    """The board and the models of a scenario file; arrivals and profiles may still be missing."""
    return read_yaml_file(path, partial(_models, folder=path.parent))


def _models(data: object, *, folder: Path) -> tuple[Board, list[ServedModel]]:
    require_version(data, VERSION)
    file = validated(ScenarioEntry, data, PARTS, "the scenario", "YAML")
    found = []
    for index, each in enumerate(file.tenants):
        model = each.model or _measured_model(each, index, folder)
        if ":" in model and parts_of(model) is None:
            refuse(
                ("tenants", index, "model"),
                f"{shown(model)} is no import path",
                f"write {FORM}",
            )
        name = each.name or model.rpartition(":")[2]
        found.append(ServedModel(name, model, each.slo_ms / 1e3, each.batch))
    return catalogue.board(file.gpu), found


def _measured_model(entry: TenantEntry, index: int, folder: Path) -> str:
    location = ("tenants", index)
    if entry.profile is None:
        refuse((*location, "model"), "the key is missing", "name the model to measure")
    return read_profile(beside(folder, entry.profile, (*location, "profile"))).model
