"""What a scenario serves, for the profiler: models by name or by import path."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.workload.models_to_profile import read_models

SCENARIO = """
version: 1
tenants:
  - model: {model}
    slo_ms: 50
    arrivals: {{generator: azure, mean_rps: 10}}
"""


def written(folder: Path, model: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO.format(model=model))
    return path


def test_a_class_of_ones_own_is_named_by_its_path_and_not_imported(tmp_path: Path) -> None:
    _, (model,) = read_models(written(tmp_path, "absent.module:Mine"))
    assert (model.model, model.tenant, model.slo_s) == ("absent.module:Mine", "Mine", 0.05)


@pytest.mark.parametrize(
    ("model", "tenant"),
    [
        ("hf:google/vit-base@v1", "vit-base"),
        ("hf:/models/mine/", "mine"),
        ("timm:resnet18.a1_in1k", "resnet18.a1_in1k"),
        ("timm:hf-hub:timm/resnet18", "resnet18"),
    ],
)
def test_a_model_of_a_library_is_named_without_its_prefix(
    model: str, tenant: str, tmp_path: Path
) -> None:
    _, (entry,) = read_models(written(tmp_path, model))
    assert (entry.model, entry.tenant) == (model, tenant)
