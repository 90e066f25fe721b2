"""Cluster scenarios: GPUs and tenants written out, boards that differ, rules that make sense."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from support.clusters import cluster, tenant

from migrator.cluster.file import is_cluster, parse_cluster, read_cluster, read_current
from migrator.core.errors import InputError
from migrator.io.yaml_text import load_yaml
from migrator.workload.file import parse_scenario

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.yaml"

DATA: dict[str, Any] = {
    "version": 1,
    "window_s": 10,
    "cluster": {"gpus": [{"board": "A100-40GB", "count": 2}]},
    "tenants": [tenant("a", rps=300)],
}


def changed(*path: object, to: object) -> dict[str, Any]:
    data: Any = copy.deepcopy(DATA)
    part = data
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = to
    scenario: dict[str, Any] = data
    return scenario


def refusal(data: object) -> str:
    with pytest.raises(InputError) as caught:
        parse_cluster(data, folder=Path(), name="test")
    return str(caught.value)


def test_the_example_reads() -> None:
    scenario = read_cluster(EXAMPLE)
    assert is_cluster(EXAMPLE)
    assert [gpu.name for gpu in scenario.gpus[:3]] == ["rack-a-1", "rack-a-2", "rack-a-3"]
    assert [gpu.node for gpu in scenario.gpus][-1] == "node-2"
    assert [placed.name for placed in scenario.tenants][:3] == ["shop-001", "shop-002", "shop-003"]
    assert scenario.rules.apart == (frozenset({"checkout", "fraud"}),)
    assert scenario.rules.spare == 0.1


def test_tenants_of_an_entry_have_names_and_arrivals_of_their_own() -> None:
    scenario = cluster([tenant("t", count=12), tenant("u")], [{"board": "A30-24GB"}])
    assert [placed.name for placed in scenario.tenants][:2] == ["t-001", "t-002"]
    assert [placed.entry for placed in scenario.tenants] == [0] * 12 + [1]
    served = [placed.served["A30-24GB"] for placed in scenario.tenants]
    assert len({own.trace.counts.tobytes() for own in served}) == 13
    again = cluster([tenant("t", count=12), tenant("u")], [{"board": "A30-24GB"}], seed=1)
    assert not (again.tenants[0].served["A30-24GB"].trace.counts == served[0].trace.counts).all()


def test_every_board_has_its_own_profiles_retrainings_and_sizes() -> None:
    scenario = cluster(
        [tenant("t", min_gpcs=4), tenant("small", min_gpcs=3)],
        [{"board": "A30-24GB"}, {"board": "H200-141GB"}],
    )
    wide, small = scenario.tenants
    assert set(wide.served) == {"A30-24GB", "H200-141GB"}
    assert set(small.served) == {"H200-141GB"}, "an A30 has no instance of 3 GPCs"
    a30, h200 = (wide.served[board].drifts[0].seconds for board in scenario.boards)
    assert a30 is not None
    assert h200 is not None
    assert [value for _, value in a30.points] == [5, 3, 2]
    assert a30.points != h200.points, "the same seconds, on other numbers of SMs"


def test_an_entry_in_a_rule_stands_for_all_of_its_tenants() -> None:
    scenario = cluster(
        [tenant("t", count=2), tenant("u")],
        [{"board": "A30-24GB", "count": 4}],
        apart=[["t"], ["t-001", "u"]],
    )
    assert scenario.rules.apart == (frozenset({"t-001", "t-002"}), frozenset({"t-001", "u"}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed("gpu", to="A100-40GB"), "gpu: cluster is given as well"),
        ({k: v for k, v in DATA.items() if k != "cluster"}, "cluster: the key is missing"),
        (changed("cluster", "gpus", to=[]), "cluster.gpus"),
        (changed("cluster", "gpus", 0, "board", to="A1000"), "cluster.gpus[0].board: unknown"),
        (
            changed("cluster", "gpus", 0, "board", to="H20-96GB"),
            "cluster.gpus[0].board: the number",
        ),
        (changed("cluster", "gpus", 0, "counts", to=2), "did you mean count?"),
        (changed("cluster", "gpus", to=[{}, {}]), "several are called 'H200-141GB'"),
        (changed("cluster", "gpus", 0, "name", to=" "), "cluster.gpus[0].name: the name is empty"),
        (changed("cluster", "gpus", 0, "name", to="a\nb"), "cannot be printed"),
        (changed("cluster", "spare", to=0.95), "cluster.spare: 0.95 is more than 0.9"),
        (changed("cluster", "apart", to=[["b"]]), "cluster.apart[0][0]: there is no tenant 'b'"),
        (changed("tenants", 0, "count", to=0), "tenants[0].count: 0 is less than 1"),
        (changed("tenants", 0, "memory_gib", to=41), "no instance of A100-40GB has 41 GiB"),
        (changed("tenants", 0, "slo_ms", to=0.1), "tenants[0].slo_ms"),
        (changed("tenants", 0, "arrivals", "mean_rps", to=1e6), "more than the"),
        (changed("version", to=2), "version: 2 is not supported"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_is_one_sentence(data: dict[str, Any], message: str) -> None:
    assert message in refusal(data)


def test_one_gpu_knows_no_cluster_keys() -> None:
    with pytest.raises(InputError, match="migrator cluster plan"):
        parse_scenario(DATA, folder=Path(), name="test")
    alone = {"version": 1, "tenants": [tenant("a", count=2)]}
    with pytest.raises(InputError, match=r"tenants\[0\].count: this goes with cluster"):
        parse_scenario(alone, folder=Path(), name="test")


def test_the_documented_cluster_is_one() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "cluster.md").read_text(encoding="utf-8")
    text = page.partition("```yaml\n")[2].partition("```")[0]
    scenario = parse_cluster(load_yaml(text), folder=Path(), name="documented")
    assert len(scenario.gpus) > 1
    assert len(scenario.tenants) > len(scenario.gpus)


def test_whatever_cannot_be_read_is_no_cluster(tmp_path: Path) -> None:
    assert not is_cluster(tmp_path / "missing.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    assert not is_cluster(tmp_path / "bad.yaml")


def test_a_placement_file_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    path.write_text('{"placement": {"a": "gpu-1"}}')
    assert read_current(path) == {"a": "gpu-1"}
    for text, message in (
        ("[]", "cluster plan --json"),
        ('{"placement": {"a": 3}}', "placement.a: 3 is no GPU's name"),
        ("{", "malformed JSON"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_current(path)
