"""The paper's workloads: its table, the loads, and the example files made from them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from migrator.core.errors import InputError
from migrator.workload.capacity import highest_rps
from migrator.workload.file import read_scenario
from migrator.workload.workloads import all_workloads, workload, workload_yaml, workloads

EXAMPLES = Path(__file__).parents[2] / "examples"

PAPER = """
W1 bert 20n vit cif      W9 bert 20n vit cor
W2 bert 20n convnext cif W10 bert 20n convnext cor
W3 vit cif convnext cif  W11 vit cor convnext cor
W4 bert 20n inception cif W12 bert 20n inception cor
W5 vit cif resnet cif    W13 vit cor resnet cor
W6 convnext cif mobilenet cif W14 convnext cor mobilenet cor
W7 inception cif resnet cif W15 inception cor resnet cor
W8 resnet cif mobilenet cif W16 resnet cor mobilenet cor
"""
ROWS = re.findall(r"(W\d+) (\w+) (\w+) (\w+) (\w+)", PAPER)
DATASETS = {"cif": "nc-cifar-10", "cor": "nc-core50", "20n": "nc-20-newsgroups"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_the_papers_table(row: tuple[str, str, str, str, str]) -> None:
    name, model_1, dataset_1, model_2, dataset_2 = row
    workload = workloads()[name]
    assert workload.models[0].startswith(model_1)
    assert workload.models[1].startswith(model_2)
    assert workload.datasets == (DATASETS[dataset_1], DATASETS[dataset_2])
    assert workload.windows == (4 if "cif" in row else 9)


@pytest.mark.parametrize("name", all_workloads())
def test_files_and_table_agree(name: str) -> None:
    path = EXAMPLES / "workloads" / all_workloads()[name].file_name
    assert path.read_text(encoding="utf-8") == workload_yaml(name), (
        "run python examples/make_workloads.py"
    )
    read, made = read_scenario(path), workload(name)
    assert (read.name, read.windows, read.board) == (made.name, made.windows, made.board)
    for tenant, other in zip(read.tenants, made.tenants, strict=True):
        assert tenant.service == other.service
        assert tenant.drifts == other.drifts
        assert tenant.offset_s == other.offset_s
        assert np.array_equal(tenant.trace.counts, other.trace.counts)


def test_no_example_without_its_row() -> None:
    file_names = {path.name for path in (EXAMPLES / "workloads").iterdir()}
    assert file_names == {all_workload.file_name for all_workload in all_workloads().values()}


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("load", [0.6, 0.9])
def test_inference_alone_needs_the_load_of_the_board(batch: int, load: float) -> None:
    scenario = workload("W7", batch=batch, load=load)
    needed = [
        tenant.trace.counts[tenant.offset_s :].mean() / highest_rps(tenant.service, scenario.board)
        for tenant in scenario.tenants
    ]
    assert sum(needed) == pytest.approx(load, rel=1e-3)
    assert needed[0] == pytest.approx(needed[1], rel=1e-3)
    assert [tenant.service.batch for tenant in scenario.tenants] == [batch, batch]


@pytest.mark.parametrize("place", [".", "traces"])
def test_real_traces_are_scaled_to_the_same_mean(tmp_path: Path, place: str) -> None:
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    seconds = np.arange(2000)
    for name, rate in [
        ("alibaba_servegen_client73.csv", 100 + 50 * np.sin(seconds / 300)),
        ("azure_llm2023_conv.csv", 3 + seconds % 7),
    ]:
        rows = "\n".join(f"{second},{count:.0f}" for second, count in enumerate(rate))
        (folder / name).write_text(f"second,count\n{rows}\n", encoding="utf-8")
    real, made = workload("W5", data=tmp_path), workload("W5")
    for tenant, other in zip(real.tenants, made.tenants, strict=True):
        assert tenant.trace.seconds == 2000
        assert tenant.trace.counts[600:1400].mean() == pytest.approx(
            other.trace.counts[600:].mean(), rel=1e-3
        )
    # the shape is the trace's own: every seven seconds the same
    shape = real.tenants[1].trace.counts
    assert abs(shape[7:14] - shape[:7]).max() <= 1


def test_a_folder_without_the_traces(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no alibaba_servegen_client73.csv in it"):
        workload("W1", data=tmp_path)


def test_names_are_taken_as_people_write_them() -> None:
    assert workload("w01").name == workload("W1").name == "W1"
    with pytest.raises(InputError, match="workload: there is no 'W17'; did you mean W"):
        workload("w17")
