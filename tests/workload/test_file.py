"""The scenario file: what it means, its defaults, and what it refuses with which sentence."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.core.errors import InputError
from migrator.core.profiles import Curve, profile
from migrator.core.scenario import Overlap, PeerLimits, ResizedTraining, Scenario, ShareSizes
from migrator.io.strict import entry_types, key_path
from migrator.io.yaml_text import load_yaml
from migrator.workload.capacity import highest_rps
from migrator.workload.datasets import drifts
from migrator.workload.entries import ScenarioEntry
from migrator.workload.file import parse_scenario, read_scenario
from migrator.workload.profile_file import parse_profile

Keys = tuple[str | int, ...]
DELETED = object()
H200 = "H200-141GB"


def smallest() -> dict[str, Any]:
    """What must be given."""
    return {
        "version": 1,
        "tenants": [
            {
                "model": "resnet-50",
                "slo_ms": 100,
                "arrivals": {"generator": "poisson", "mean_rps": 50},
            }
        ],
    }


def whole() -> dict[str, Any]:
    """A scenario that uses every key but profile."""
    return {
        "version": 1,
        "name": "pair",
        "gpu": "A100-40GB",
        "window_s": 100,
        "slot_s": 0.5,
        "windows": 2,
        "policy": "ekya",
        "forecaster": "ewma",
        "seed": 7,
        "workers": "cold",
        "tenants": [
            {
                "name": "images",
                "model": "vit-b-16",
                "slo_ms": 50,
                "batch": 4,
                "min_gpcs": 2,
                "arrivals": {"trace": "traces/ones.csv", "scale": 2.0, "offset_s": 30},
                "retraining": {
                    "windows": [
                        {"accuracy_pre": 0.6, "accuracy_post": 0.9, "seconds": {"1": 60, "4": 20}},
                        {"accuracy_pre": 0.5, "accuracy_post": 0.8, "seconds": {"2": 30}},
                    ]
                },
            },
            {
                "name": "texts",
                "model": "bert-base",
                "slo_ms": 80.5,
                "batch": 1,
                "min_gpcs": 1,
                "arrivals": {"generator": "poisson", "mean_rps": 20, "offset_s": 100},
                "retraining": {"dataset": "nc-20-newsgroups"},
            },
        ],
    }


@pytest.fixture(name="folder", scope="module")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the trace that `whole` names: one request a second for 1,000 seconds."""
    folder = tmp_path_factory.mktemp("scenario")
    write_trace(folder / "traces" / "ones.csv", [1] * 1000)
    return folder


def write_trace(path: Path, counts: list[int]) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [f"{second},{count}" for second, count in enumerate(counts)]
    path.write_text("\n".join(["second,count", *rows]) + "\n", encoding="utf-8")


def changed(data: dict[str, Any], *path_and_value: Any) -> dict[str, Any]:
    """The scenario with one value replaced, added or DELETED."""
    *path, value = path_and_value
    parent: Any = data
    for key in path[:-1]:
        parent = parent[key]
    if value is DELETED:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return data


def parsed(data: object, folder: Path = Path(), **changes: int) -> Scenario:
    return parse_scenario(data, folder=folder, name="unnamed", **changes)


def refusal(data: object, folder: Path = Path()) -> str:
    with pytest.raises(InputError) as caught:
        parsed(data, folder)
    return one_line(caught.value)


def one_line(error: InputError) -> str:
    sentence = str(error)
    assert type(error) is InputError
    assert sentence.isprintable()
    assert ";" in sentence, "what is wrong; the remedy"
    return sentence


def test_defaults() -> None:
    scenario = parsed(smallest())
    assert (scenario.name, scenario.board.name) == ("unnamed", H200)
    assert (scenario.window_s, scenario.slot_s, scenario.slots, scenario.windows) == (
        200,
        1,
        200,
        1,
    )
    assert (scenario.policy, scenario.forecaster, scenario.seed) == ("migrator", "auto", 0)
    assert scenario.prepared
    (tenant,) = scenario.tenants
    assert tenant.name == "resnet-50"
    assert tenant.service.profile == profile("resnet-50", H200)
    assert (tenant.service.slo_s, tenant.service.batch, tenant.service.min_gpcs) == (0.1, 1, 1)
    assert (tenant.offset_s, tenant.trace.seconds, tenant.drifts) == (600, 800, ())


def test_every_key_means_what_the_format_says(folder: Path) -> None:
    scenario = parsed(whole(), folder)
    assert (scenario.name, scenario.board.name) == ("pair", "A100-40GB")
    assert (scenario.window_s, scenario.slot_s, scenario.slots, scenario.windows) == (
        100,
        0.5,
        200,
        2,
    )
    assert (scenario.policy, scenario.forecaster, scenario.seed) == ("ekya", "ewma", 7)
    assert not scenario.prepared
    images, texts = scenario.tenants
    assert (images.name, texts.name) == ("images", "texts")
    assert images.service.profile == profile("vit-b-16", "A100-40GB")
    assert (images.service.slo_s, images.service.batch) == (0.05, 4)
    assert images.service.min_gpcs == 2
    assert (images.offset_s, texts.offset_s) == (30, 100)
    assert images.trace.counts.tolist() == [2] * 1000
    assert texts.trace.seconds == 300
    assert [(drift.accuracy_pre, drift.accuracy_post) for drift in images.drifts] == [
        (0.6, 0.9),
        (0.5, 0.8),
    ]
    assert images.drifts[0].seconds == Curve(((14.0, 60.0), (56.0, 20.0)))
    assert texts.drifts == drifts("nc-20-newsgroups", texts.service.profile)


def test_a_file_is_read_with_its_name_and_beside_its_traces(folder: Path) -> None:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(changed(whole(), "name", DELETED)), encoding="utf-8")
    scenario = read_scenario(path)
    assert scenario.name == "mine"
    assert scenario.tenants[0].trace.mean_rps == 2
    with pytest.raises(InputError, match=r"mine\.yaml: .*no such file"):
        read_scenario(path.parent / "absent" / "mine.yaml")


def test_seed_and_windows_can_be_overridden(folder: Path) -> None:
    path = folder / "seeds.yaml"
    path.write_text(yaml.safe_dump(whole()), encoding="utf-8")
    first, again = read_scenario(path), read_scenario(path, seed=7)
    other = read_scenario(path, seed=8, windows=3)
    assert np.array_equal(first.tenants[1].trace.counts, again.tenants[1].trace.counts)
    assert not np.array_equal(
        first.tenants[1].trace.counts, other.tenants[1].trace.counts[: 100 + 200]
    )
    assert np.array_equal(first.tenants[0].trace.counts, other.tenants[0].trace.counts)
    assert (other.seed, other.windows, other.tenants[1].trace.seconds) == (8, 3, 400)


@pytest.mark.parametrize("kind", ["alibaba", "azure", "poisson"])
def test_generated_arrivals_have_their_mean_in_the_run(kind: str) -> None:
    arrivals = {"generator": kind, "mean_rps": 100}
    scenario = parsed(changed(smallest(), "tenants", 0, "arrivals", arrivals), windows=4)
    assert scenario.tenants[0].trace.counts[600:].mean() == pytest.approx(100, abs=0.01)


@pytest.mark.parametrize(
    ("seconds", "arrivals", "windows", "expected"),
    [
        # no number is given: all nine drifts where there is room for them
        (2400, {}, None, (9, 600)),
        # one window of history is kept, the rest is run
        (1800, {}, None, (8, 200)),
        (399, {}, None, (1, 199)),
        (1000, {"offset_s": 100}, None, (4, 100)),
        # a number was asked for: what is left over is history
        (1000, {}, 5, (5, 0)),
        (1000, {}, 3, (3, 400)),
    ],
)
def test_windows_and_history_that_a_trace_has_room_for(
    tmp_path: Path,
    seconds: int,
    arrivals: dict[str, int],
    windows: int | None,
    expected: tuple[int, int],
) -> None:
    write_trace(tmp_path / "trace.csv", [3] * seconds)
    data = smallest()
    data["tenants"][0].update(
        arrivals={"trace": "trace.csv", **arrivals}, retraining={"dataset": "nc-core50"}
    )
    if windows:
        data["windows"] = windows
    scenario = parsed(data, tmp_path)
    assert (scenario.windows, scenario.tenants[0].offset_s) == expected


@pytest.mark.parametrize(
    ("seconds", "arrivals", "windows", "said"),
    [
        (1000, {}, 6, "its 1000 s have no room for 6 windows of 200 s; ask for at most 5 windows"),
        (1000, {"offset_s": 500}, 3, "after offset_s 500; ask for at most 2 windows"),
        (1000, {"offset_s": 2000}, None, "give a longer trace or a shorter window_s"),
    ],
)
def test_a_trace_too_short(
    tmp_path: Path, seconds: int, arrivals: dict[str, int], windows: int | None, said: str
) -> None:
    write_trace(tmp_path / "trace.csv", [3] * seconds)
    data = changed(smallest(), "tenants", 0, "arrivals", {"trace": "trace.csv", **arrivals})
    data["windows"] = windows
    sentence = refusal(data, tmp_path)
    assert sentence.startswith("tenants[0].arrivals.trace: ")
    assert said in sentence


def test_the_rate_of_the_run_decides_not_that_of_the_trace(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.csv", [10] * 600 + [1000] * 200)
    data = changed(smallest(), "tenants", 0, "arrivals", {"trace": "trace.csv", "scale": 3})
    most = highest_rps(parsed(smallest()).tenants[0].service, parsed(smallest()).board)
    assert parsed(data, tmp_path).tenants[0].trace.counts[-1] == 3000
    sentence = refusal(changed(data, "tenants", 0, "arrivals", "scale", 9), tmp_path)
    offered = float(sentence.rpartition(" ")[2])
    assert offered == pytest.approx(most / 1000, rel=1e-3)
    assert sentence == (
        f"tenants[0].arrivals.scale: 9000 requests per second on average are more than the "
        f"{most:.6g} that all of H200-141GB can answer in time for this tenant; "
        f"set overload: true or give at most {offered:g}"
    )
    assert parsed(changed(data, "tenants", 0, "arrivals", "scale", offered), tmp_path)


def test_copies_of_a_trace_are_added_up_where_their_delay_is_given(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.csv", [10] * 700 + [20] * 100)
    arrivals = {"trace": "trace.csv", "scale": 3, "spread_s": 20}
    data = changed(smallest(), "tenants", 0, "arrivals", arrivals)
    counts = parsed(data, tmp_path).tenants[0].trace.counts
    assert counts[[699, 700, 706, 707, 713, 714]].tolist() == [30, 40, 40, 50, 50, 60]
    data = changed(smallest(), "tenants", 0, "arrivals", "spread_s", 20)
    assert "tenants[0].arrivals.spread_s: this goes with trace" in refusal(data)


def test_the_limits_of_peers() -> None:
    assert parsed(smallest()).peers == PeerLimits()
    peers = {"min_sms": 13.2, "shares": "any", "resized_training": "free", "workers": "cold"}
    assert parsed({**smallest(), "peers": {**peers, "overlap": "unlimited"}}).peers == PeerLimits(
        13.2, ShareSizes.ANY, ResizedTraining.FREE, Overlap.UNLIMITED, prepared=False
    )
    assert parsed({**smallest(), "peers": {"min_sms": 132}}).peers.min_sms == 132
    assert refusal({**smallest(), "peers": {"min_sms": 133}}) == (
        "peers.min_sms: 133 SMs are more than the 132 of H200-141GB; give at most 132"
    )
    assert "peers.shares" in refusal({**smallest(), "peers": {"shares": "all"}})


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("version",), 2, "write the file in version 1"),
        (("gpu",), "GH200-144GB", "the number of SMs"),
        (("window_s",), 199.5, "give 200"),
        (("slot_s",), 0.3, "give 1, 2, 3, ... or 1/2, 1/3"),
        (("tenants",), [], "at least one tenant"),
        (("tenants", 0, "model"), "resnet50", "did you mean resnet-50"),
        (("tenants", 0, "model"), "my_models:Detector", "measure one with `migrator profile`"),
        (("tenants", 0, "model"), "my-models:Detector", "write package.module:Class"),
        (("tenants", 1, "name"), "images", "already the name of tenants[0]"),
        (("tenants", 0, "slo_ms"), 0.2, "on the largest instance of A100-40GB"),
        (("tenants", 0, "min_gpcs"), 5, "use 1, 2, 3, 4 or 7 GPCs"),
        (("tenants", 0, "profile"), "absent.json", "there is no file"),
        (("tenants", 0, "arrivals"), {}, "neither trace nor generator"),
        (("tenants", 0, "arrivals", "trace"), "absent.csv", "no such file"),
        (("tenants", 0, "arrivals", "generator"), "azure", "trace is given as well"),
        (("tenants", 1, "arrivals", "mean_rps"), DELETED, "missing beside generator"),
        (("tenants", 0, "retraining"), {}, "neither dataset nor windows"),
        (("tenants", 0, "retraining", "windows", 0, "seconds", "5"), 1, "1, 2, 3, 4 or 7 GPCs"),
        (("tenants", 0, "retraining", "windows", 0, "seconds"), None, "the accuracy changes"),
        (("tenants", 0, "retraining", "windows", 1, "acuracy_pre"), 0, "mean accuracy_pre"),
        (("tenants", 1, "retraining", "dataset"), "newsgroups", "nc-20-newsgroups"),
    ],
)
def test_refused_by_key_with_a_remedy(folder: Path, keys: Keys, value: object, said: str) -> None:
    sentence = refusal(changed(whole(), *keys, value), folder)
    # what is missing or given twice may be reported at the object that holds it
    assert sentence.startswith((f"{key_path(keys)}: ", f"{key_path(keys[:-1])}: "))
    assert said in sentence


def test_a_window_is_a_whole_number_of_slots(folder: Path) -> None:
    data = changed(whole(), "slot_s", 3)
    assert refusal(data, folder) == (
        "window_s: 100 s are not a whole number of slots of 3 s; give 99 or 102"
    )
    assert parsed(changed(whole(), "slot_s", 0.3333), folder).slots == 300


def test_no_more_tenants_than_instances() -> None:
    data = smallest()
    data["tenants"] = [{**data["tenants"][0], "name": f"t{n}"} for n in range(8)]
    assert refusal(data).startswith("tenants: 8 tenants need an instance each, and H200-141GB has")
    del data["tenants"][7]
    assert len(parsed(data).tenants) == 7
    data["tenants"][0]["min_gpcs"] = 2
    assert refusal(data).startswith("tenants: instances of 2, 1, 1, 1, 1, 1 and 1 GPCs never fit")
    del data["tenants"][6]
    assert len(parsed(data).tenants) == 6


def all_keys(data: object, path: Keys = ()) -> list[Keys]:
    if isinstance(data, dict):
        items: list[tuple[str | int, object]] = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    else:
        return []
    return [
        found for key, value in items for found in [(*path, key), *all_keys(value, (*path, key))]
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(deadline=None)
@given(st.sampled_from(all_keys(whole())), VALUES)
def test_any_value_under_any_key_is_taken_or_refused_in_one_line(
    folder: Path, keys: Keys, value: object
) -> None:
    try:
        parsed(changed(whole(), *keys, copy.deepcopy(value)), folder)
    except InputError as error:
        one_line(error)


def documented(language: str, page: str) -> str:
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"```{language}\n")[2].partition("```")[0]


def test_the_documented_example_is_a_scenario() -> None:
    scenario = parsed(load_yaml(documented("yaml", "scenario-format.md")))
    assert [tenant.name for tenant in scenario.tenants] == ["photos", "mail"]
    assert [len(tenant.drifts) for tenant in scenario.tenants] == [4, 2]


def test_the_documented_profile_is_one() -> None:
    printed = parse_profile(json.loads(documented("json", "profiles.md")))
    measured_profile = profile("resnet-50", H200)
    assert printed.latency_s(4, 60) == pytest.approx(measured_profile.latency_s(4, 60), rel=0.01)
    assert printed.training_ratio == measured_profile.training_ratio


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scenario-format.md").read_text(encoding="utf-8")
    for model in entry_types(ScenarioEntry).values():
        for key in model.model_fields:
            assert f"`{key}`" in page, key


def test_a_model_of_ones_own_is_named_by_its_import_path(tmp_path: Path) -> None:
    measured = json.loads(documented("json", "profiles.md"))
    (tmp_path / "mine.json").write_text(json.dumps({**measured, "model": "as measured"}))
    data = smallest()
    data["tenants"][0] |= {"model": "nowhere.to_be_found:Detector", "profile": "mine.json"}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(data))
    tenant = read_scenario(tmp_path / "own.yaml").tenants[0]
    assert tenant.name == "Detector"
    assert tenant.service.profile.model == "nowhere.to_be_found:Detector"
    assert tenant.service.profile.latency_ms == parse_profile(measured).latency_ms


def test_a_model_that_fits_no_instance_is_refused_with_its_memory(tmp_path: Path) -> None:
    entry = json.loads(files("migrator.core").joinpath("profiles.json").read_text("utf-8"))
    large = {**entry["profiles"][0], "memory_mib": {"1": 200_000.0}}
    (tmp_path / "large.json").write_text(json.dumps(large), encoding="utf-8")
    tenant = {"slo_ms": 50, "arrivals": {"generator": "poisson", "mean_rps": 1}}
    data = {"version": 1, "tenants": [{**tenant, "profile": "large.json"}]}
    with pytest.raises(InputError, match=r"tenants\[0\].model: serving it takes 200,960 MiB"):
        parse_scenario(data, folder=tmp_path, name="x")


# Tenants with several ways to retrain.

AT = ("tenants", 0, "retraining", "configurations")


def configured(*path_and_value: Any) -> dict[str, Any]:
    """A tenant with two configurations and two windows, with one value replaced or added."""
    data, tenant = smallest(), smallest()["tenants"][0]
    first = {"accuracy_pre": 0.6, "accuracy_post": 0.9, "seconds": {"1": 60, "4": 20}}
    half = {"accuracy_post": 0.8, "seconds": {"1": 30, "4": 10}, "accuracy_estimated": 0.7}
    windows = [half, {"accuracy_post": 0.5}]
    tenant["retraining"] = {
        "windows": [first, {"accuracy_pre": 0.5, "accuracy_post": 0.5}],
        "configurations": [
            {"name": "all"},
            {"name": "half", "memory_gib": 20, "windows": windows},
        ],
    }
    data["tenants"] = [tenant]
    return changed(data, *path_and_value)


@pytest.mark.parametrize(("labels", "kept"), [("start", 1.0), ("feedback", 0.5 / 0.9)])
def test_a_window_has_the_other_configurations_beside_the_first(labels: str, kept: float) -> None:
    """Labels that come during a window are learned a window later."""
    drifts = parsed(configured("labels", labels)).tenants[0].drifts
    learned = drifts[labels == "feedback"]
    (half,) = learned.others
    assert (learned.configuration, half.name, half.memory_gib) == ("all", "half", 20)
    assert half.accuracy_post == pytest.approx(0.8 * kept)
    assert half.accuracy_expected == pytest.approx(0.7 * kept)
    assert half.seconds.at(16) == pytest.approx(30)
    assert drifts[labels == "start"].others == ()


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        (
            (0, "windows"),
            [{"accuracy_post": 0.8}],
            "[0].windows: the first configuration is the one that dataset or windows describes; "
            "leave it out",
        ),
        (
            (1,),
            {"name": "half"},
            "[1].windows: the key is missing; give 2, as many as the first configuration has",
        ),
        (
            (1, "windows", 0, "seconds"),
            None,
            "[1].windows[0].seconds: the key is missing; give seconds in the windows in which the "
            "first configuration has some",
        ),
        (
            (1, "windows", 1, "seconds"),
            {"1": 3},
            "[1].windows[1].seconds: there is nothing to retrain; give seconds in the windows in "
            "which the first configuration has some",
        ),
        (
            (1, "name"),
            "all",
            "[1].name: 'all' is already the name of tenants[0].retraining.configurations[0]; give "
            "every configuration a name of its own",
        ),
    ],
)
def test_wrong_configurations_are_refused_by_key(keys: Keys, value: Any, sentence: str) -> None:
    said = refusal(configured(*AT, *keys, value))
    assert said == f"tenants[0].retraining.configurations{sentence}"
