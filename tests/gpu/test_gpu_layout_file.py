"""Layout files: what they mean on a board, what they refuse and with which sentence; round trip."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.core.catalogue import Place, board, boards, maximal_placement_sets
from migrator.core.errors import InputError
from migrator.gpu.drivers.base import Gpu
from migrator.gpu.layout import Layout
from migrator.gpu.layout_file import (
    NEVER_OFF,
    LayoutFile,
    layout_to_json,
    layout_to_yaml,
    parse_layout,
    read_layout,
)
from migrator.io.yaml_text import load_yaml

EXAMPLES = Path(__file__).parents[2] / "examples" / "layouts"

Json = dict[str, Any]


def gpu_of(name: str = "A100-40GB", index: int = 0) -> Gpu:
    return Gpu(index, f"GPU-{index}", f"NVIDIA {name}", board(name), "boot", "1.0", True, "mig")


def entry(*instances: object, **keys: object) -> Json:
    return {"version": 1, "instances": list(instances), **keys}


def refusal(data: object, gpu: Gpu | None = None, name: str | None = None) -> str:
    with pytest.raises(InputError) as refused:
        parse_layout(data, gpu or gpu_of(), name)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert "; " in sentence, "a sentence without a remedy"
    return sentence


# What it means.


def test_places_counts_and_sizes() -> None:
    data = entry(
        {"profile": "3g.20gb", "start": 4},
        {"gpcs": 2, "start": 0},
        {"profile": "1g.5gb", "count": 2},
        gpu="A100-40GB",
    )
    wanted = parse_layout(data, gpu_of())
    assert wanted.layout == Layout((Place(4, "3g.20gb"), Place(0, "2g.10gb")), {"1g.5gb": 2})
    assert wanted.notes == ()


def test_an_instance_without_start_and_count_is_one_wherever_it_fits() -> None:
    data = entry({"gpcs": 1}, {"gpcs": 1, "count": 2}, {"profile": "1g.5gb+me"})
    assert parse_layout(data, gpu_of()).layout.counts == {"1g.5gb": 3, "1g.5gb+me": 1}


def test_the_empty_gpu() -> None:
    assert parse_layout(entry(), gpu_of()) == LayoutFile(Layout())


def test_sizes_mean_the_plain_profile_of_each_board() -> None:
    data = entry({"gpcs": 1, "start": 1})
    places = {name: parse_layout(data, gpu_of(name)).layout.places[0].profile for name in boards()}
    assert places["A100-40GB"] == "1g.5gb"
    assert places["H200-141GB"] == "1g.18gb"
    assert not [place for place in places.values() if "+" in place or "-" in place]


@pytest.mark.parametrize("name", boards())
def test_every_maximal_layout_of_every_board_goes_out_and_comes_back(name: str) -> None:
    gpu = gpu_of(name)
    plain = gpu.board.plain_profiles
    for chosen in maximal_placement_sets(gpu.board):
        places = [Place(placement.start, plain[placement.gpcs].name) for placement in chosen]
        text = layout_to_yaml(gpu.board, places)
        for data in (load_yaml(text), layout_to_json(gpu.board, places)):
            assert parse_layout(data, gpu).layout == Layout(tuple(sorted(places)))


@pytest.mark.parametrize("name", ["NVIDIA X: 1", "null", "1e5", "# none", "a, b}", 'quo"te'])
def test_a_board_that_calls_itself_anything_goes_out_and_comes_back(name: str) -> None:
    gpu = replace(gpu_of(), board=replace(board("A100-40GB"), name=name))
    text = layout_to_yaml(gpu.board, [Place(4, "3g.20gb")])
    assert parse_layout(load_yaml(text), gpu).layout == Layout((Place(4, "3g.20gb"),))


# What it refuses.


WRONG_LAYOUTS: list[tuple[object, str]] = [
    ([], "the layout is an empty list"),
    ("3g.20gb", "the layout is '3g.20gb'"),
    ({"instances": []}, "version: the key is missing"),
    ({"version": 2, "instances": []}, "version: 2 is not supported"),
    ({"version": "1", "instances": []}, "version: '1' is not supported"),
    ({"version": 1}, "instances: the key is missing"),
    ({"version": 1, "instance": []}, "instance: unknown key; did you mean instances?"),
    (entry(gpu="A100-4GB"), "gpu: there is no board 'A100-4GB'; did you mean A100-40GB?"),
    (entry(gpu="H200-141GB"), "for H200-141GB, but GPU 0 is A100-40GB"),
    (entry({"profil": "3g.20gb"}), "instances[0].profil: unknown key; did you mean profile?"),
    (entry({"start": 4}), "instances[0]: neither profile nor gpcs"),
    (entry({"profile": "3g.20gb", "gpcs": 3}), "instances[0]: both profile and gpcs"),
    (entry({"profile": "3g.40gb", "start": 4}), "did you mean 3g.20gb?"),
    (entry({"gpcs": 5, "start": 0}), "instances[0].gpcs: A100-40GB has no instance of 5 GPCs"),
    (entry({"gpcs": 3, "start": 1}), "no 3g.20gb at slice 1; use 0 or 4"),
    (entry({"gpcs": 3, "start": -1}), "instances[0].start: -1 is less than 0"),
    (entry({"gpcs": 3, "start": "4"}), "instances[0].start: '4' is not an integer"),
    (entry({"gpcs": 1, "count": 0}), "instances[0].count: 0 is less than 1"),
    (entry({"gpcs": 1, "count": 2, "start": 0}), "with a start is one instance"),
    (entry("3g.20gb"), "instances[0]: '3g.20gb' is not an object"),
    (entry({"gpcs": 4, "start": 0}, {"gpcs": 2, "start": 2}), "overlap on A100-40GB"),
    (entry({"gpcs": 3, "start": 0}, {"gpcs": 3, "start": 0}), "overlap on A100-40GB"),
    (entry({"gpcs": 1, "count": 8}), "8 instances of 1g.5gb"),
    (entry({"gpcs": 4}, {"gpcs": 4}), "2 instances of 4g.20gb"),
    (entry({"gpcs": 4}, {"gpcs": 2, "count": 2}), "take 8 GPCs"),
    ({"kind": "ConfigMap", "data": {}}, "kind: this is a Kubernetes ConfigMap"),
    ({"steps": []}, "steps: unknown key"),
]


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["version", "gpu", "instances", "profile", "gpcs", "start", "count"]
                )
                | st.sampled_from(["mig-configs", "devices", "mig-enabled", "mig-devices"])
                | st.text(max_size=4),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_content_is_accepted_or_refused_in_one_sentence(data: object) -> None:
    for content in (
        data,
        {"version": 1, "instances": data},
        {"version": "v1", "mig-configs": data},
    ):
        sentence = ""
        try:
            parse_layout(content, gpu_of())
        except InputError as error:
            sentence = str(error)
        assert "\n" not in sentence


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("missing.yaml", "there is no such file"),
        ("missing.yaml:name", "missing.yaml: there is no such file"),
        (".", "this is a directory"),
        ("", "LAYOUT: no file is named"),
        ("layout.yaml:", "ends with a colon"),
    ],
)
def test_files_that_cannot_be_read(
    given: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        read_layout(given, gpu_of())


# mig-parted files.


def parted(**names: object) -> Json:
    return {"version": "v1", "mig-configs": names}


def wants(instances: object = None, devices: object = "all", enabled: bool = True) -> Json:
    return {"devices": devices, "mig-enabled": enabled, "mig-devices": instances or {}}


SMALL = parted(small=[wants({"1g.5gb": 7})])
MIXED = parted(mixed=[wants({"3g.20gb": 2}, [0, 2]), wants({"1g.5gb": 7}, [1])])
BOTH = parted(x=[wants({"3g.20gb": 2}), wants({"7g.40gb": 1}, [1])])
"""Two entries fit GPU 1."""
BALANCED = parted(
    balanced=[
        wants({"1g.18gb": 2}) | {"device-filter": ["0x233510DE"]},
        wants({"1g.5gb": 2}) | {"device-filter": "0x20b010de"},
    ]
)


@pytest.mark.parametrize(
    ("data", "gpu", "name", "counts"),
    [
        (SMALL, gpu_of(), None, {"1g.5gb": 7}),
        (SMALL, gpu_of(), "small", {"1g.5gb": 7}),
        (MIXED, gpu_of(index=2), None, {"3g.20gb": 2}),
        (MIXED, gpu_of(index=1), None, {"1g.5gb": 7}),
        (BOTH, gpu_of(index=1), None, {"7g.40gb": 1}),
        (BALANCED, gpu_of("A100-40GB"), None, {"1g.5gb": 2}),
        (BALANCED, gpu_of("H200-141GB"), None, {"1g.18gb": 2}),
    ],
)
def test_of_the_entries_for_a_gpu_and_its_pci_device_the_last_counts(
    data: Json, gpu: Gpu, name: str | None, counts: dict[str, int]
) -> None:
    assert parse_layout(data, gpu, name).layout == Layout((), counts)


def test_a_gpu_that_no_entry_is_for_is_refused() -> None:
    assert "no entry is for GPU 3" in refusal(MIXED, gpu_of(index=3))
    assert "no entry is for GPU 0, A30-24GB" in refusal(BALANCED, gpu_of("A30-24GB"))


def test_a_name_is_chosen_after_a_colon(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    both = parted(a=[wants({"3g.20gb": 2})], b=[wants({"1g.5gb": 1})])
    path.write_text(json.dumps(both), "utf-8")
    assert read_layout(f"{path}:a", gpu_of()).layout.counts == {"3g.20gb": 2}
    assert read_layout(f"{path}:b", gpu_of()).layout.counts == {"1g.5gb": 1}


def test_a_colon_in_the_name_of_a_file_is_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "layout:night.yaml"
    path.write_text(layout_to_yaml(board("A100-40GB"), []), "utf-8")
    assert read_layout(str(path), gpu_of()).layout == Layout()


def test_mig_off_means_no_instances_with_a_note() -> None:
    data = {"version": "v1", "mig-configs": {"off": [{"devices": "all", "mig-enabled": False}]}}
    wanted = parse_layout(data, gpu_of())
    assert wanted.layout == Layout()
    assert wanted.notes == (NEVER_OFF,)


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        *((data, None, message) for data, message in WRONG_LAYOUTS),
        (entry(), "balanced", "leave the name out"),
        ({"version": "v1"}, None, "mig-configs: the key is missing"),
        (
            {"version": 1, "mig-configs": {"a": [wants()]}},
            None,
            "version: 1 is not understood; give ",
        ),
        ({"version": "v1", "mig-configs": {}}, None, "mig-configs: an empty object"),
        ({"version": "v1", "mig-configs": {"a": [wants()]}, "x": 1}, None, "x: unknown key"),
        (parted(a=[]), None, "mig-configs.a: an empty list"),
        (parted(a=[wants()], b=[wants()]), None, "the file has a and b; name one as FILE:NAME"),
        (parted(even=[wants()], odd=[wants()]), "evn", "there are even and odd (did you mean even"),
        (parted(a=[{"devices": "all"}]), None, "mig-configs.a[0].mig-enabled: the key is missing"),
        (parted(a=[{"mig-enabled": True, "mig-devices": {}}]), None, "devices: the key is missing"),
        (
            parted(a=[{"devices": "all", "mig-enabled": True}]),
            None,
            "mig-configs.a[0].mig-devices: the key is missing",
        ),
        (parted(a=[wants(devices="some")]), None, "devices: 'some' is not understood"),
        (parted(a=[wants(devices=[True])]), None, "devices: a list is not understood"),
        (parted(a=[wants({"1g.5gb": "7"})]), None, "give how many"),
        (parted(a=[wants({"1g.6gb": 7})]), None, "has no MIG profile '1g.6gb'"),
        (parted(a=[wants({"1c.3g.20gb": 3})]), None, "use 3g.20gb"),
        (parted(a=[wants() | {"device-filter": 7}]), None, "device-filter: 7 is not understood"),
        (parted(a=[wants({"1g.5gb": 1}, enabled=False)]), None, "mig-enabled"),
        (parted(a=[wants() | {"mig-device": {}}]), None, "did you mean mig-devices?"),
    ],
)
def test_errors_name_the_key(data: object, name: str | None, message: str) -> None:
    assert message in refusal(data, name=name)


# The examples.


@pytest.mark.parametrize(
    ("given", "places", "counts"),
    [
        ("serve-and-retrain.yaml", {Place(0, "4g.20gb"), Place(4, "3g.20gb")}, {}),
        ("small-services.yaml", {Place(0, "2g.10gb")}, {"1g.5gb": 3}),
        ("mig-parted.yaml:three-by-two", set(), {"2g.10gb": 3}),
        ("mig-parted.yaml:by-gpu", set(), {"3g.20gb": 1, "1g.5gb": 2}),
        ("mig-parted.yaml:empty", set(), {}),
    ],
)
def test_the_examples(given: str, places: set[Place], counts: dict[str, int]) -> None:
    wanted = read_layout(str(EXAMPLES / given), gpu_of()).layout
    assert set(wanted.places) == places
    assert dict(wanted.counts) == counts


def test_the_layout_in_the_documentation() -> None:
    text = (EXAMPLES.parents[1] / "docs" / "gpu.md").read_text("utf-8")
    (block,) = [part.partition("```")[0] for part in text.split("```yaml\n")[1:]]
    wanted = parse_layout(load_yaml(block), gpu_of()).layout
    assert set(wanted.places) == {Place(4, "3g.20gb"), Place(0, "2g.10gb")}
    assert dict(wanted.counts) == {"1g.5gb": 1}
