"""The problem file: what it means, what it refuses and with which sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.make import only

from migrator.core.catalogue import Board, board, boards, placement_sets
from migrator.core.errors import InputError
from migrator.core.problem import (
    Charge,
    Initial,
    Instance,
    Kind,
    Problem,
    RetrainingConfiguration,
    RunningRetraining,
    Task,
    Tenant,
)
from migrator.io.strict import key_path
from migrator.planning.problem_file import parse_problem, problem_to_json, read_problem

DELETED = object()
Keys = tuple[str | int, ...]

NAN = float("nan")
INFINITY = float("inf")


def valid() -> dict[str, Any]:
    """A problem of two tenants and three slots that uses every key."""
    return {
        "version": 1,
        "gpu": "A100-40GB",
        "slot_s": 1.0,
        "slots": 3,
        "charge": "paper",
        "tenants": [
            {
                "name": "bert",
                "received": [12, 30, 7.5],
                "capability": {"1": 60, "2": 110, "7": 280},
                "accuracy_pre": 0.61,
                "accuracy_post": 0.85,
                "retraining_slots": {"1": 3, "4": 1},
                "overhead_s": 1.0,
                "min_gpcs": 1,
            },
            {
                "name": "resnet",
                "received": [[1, 2, 3], [4, 5, 6]],
                "capability": {"3": 9},
                "accuracy_pre": 0.5,
                "accuracy_post": 0.7,
                "retraining_slots": None,
                "overhead_s": 0,
                "min_gpcs": 2,
            },
        ],
        "initial": {
            "instances": [
                {"start": 0, "gpcs": 2, "task": "bert/inference"},
                {"start": 4, "gpcs": 3, "task": "resnet/retraining"},
                {"start": 2, "gpcs": 1, "task": None},
            ],
            "retrainings": [{"tenant": "resnet", "slots_left": 2}],
        },
    }


def changed(*path_and_value: Any) -> dict[str, Any]:
    """The valid problem with one value replaced, added or DELETED."""
    *path, value = path_and_value
    data = valid()
    parent: Any = data
    for key in path[:-1]:
        parent = parent[key]
    if value is DELETED:
        del parent[path[-1]]
    elif isinstance(parent, list) and path[-1] == len(parent):
        parent.append(value)
    else:
        parent[path[-1]] = value
    return data


def refusal(data: object) -> str:
    """The one sentence with which the problem is refused."""
    with pytest.raises(InputError) as caught:
        parse_problem(data)
    return one_line(caught.value)


def one_line(error: InputError) -> str:
    sentence = str(error)
    assert type(error) is InputError
    assert sentence.isprintable()
    assert ";" in sentence, "what is wrong; the remedy"
    return sentence


def all_keys(data: object, path: Keys = ()) -> list[Keys]:
    """Every key of the objects in `data` that the format fixes."""
    if isinstance(data, list):
        return [keys for index, item in enumerate(data) for keys in all_keys(item, (*path, index))]
    if not isinstance(data, dict) or path[-1:] in (("capability",), ("retraining_slots",)):
        return []
    return [
        place
        for key, value in data.items()
        for place in [(*path, key), *all_keys(value, (*path, key))]
    ]


def test_every_key_means_what_the_format_says() -> None:
    bert = Task("bert", Kind.INFERENCE)
    resnet = Task("resnet", Kind.RETRAINING)
    assert parse_problem(valid()) == Problem(
        board=board("A100-40GB"),
        slot_s=1.0,
        slots=3,
        charge=Charge.PAPER,
        tenants=(
            Tenant(
                "bert",
                ((12.0, 30.0, 7.5),),
                {1: 60.0, 2: 110.0, 7: 280.0},
                0.61,
                only(0.85, {1: 3, 4: 1}),
                1.0,
                1,
            ),
            Tenant(
                "resnet",
                ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)),
                {3: 9.0},
                0.5,
                only(0.7, None),
                0.0,
                2,
            ),
        ),
        initial=Initial(
            (Instance(0, 2, bert), Instance(4, 3, resnet), Instance(2, 1, None)),
            (RunningRetraining("resnet", 2),),
        ),
    )


def test_initial_null_is_not_an_empty_initial() -> None:
    assert parse_problem(changed("initial", None)).initial is None
    empty = changed("initial", {"instances": [], "retrainings": []})
    assert parse_problem(empty).initial == Initial()


@pytest.mark.parametrize("name", boards())
def test_every_board_takes_exactly_its_sizes(name: str) -> None:
    sizes = {str(gpcs): 1 for gpcs in board(name).sizes}
    data = changed("initial", None)
    data["gpu"] = name
    for tenant in data["tenants"]:
        tenant.update(capability=sizes, retraining_slots=sizes)
    assert tuple(parse_problem(data).tenants[0].capability) == board(name).sizes
    data["tenants"][1]["capability"] = {**sizes, "5": 1}
    assert refusal(data).startswith("tenants[1].capability.5: ")


@pytest.mark.parametrize("keys", all_keys(valid()), ids=key_path)
def test_every_key_is_required(keys: Keys) -> None:
    sentence = refusal(changed(*keys, DELETED))
    assert sentence.startswith(f"{key_path(keys)}: the key is missing; give ")
    assert "None" not in sentence


@pytest.mark.parametrize("keys", all_keys(valid()), ids=key_path)
def test_a_misspelt_key_is_answered_with_the_right_one(keys: Keys) -> None:
    data = changed(*keys, DELETED)
    parent: Any = data
    for key in keys[:-1]:
        parent = parent[key]
    misspelt = f"{keys[-1]}x"
    parent[misspelt] = 1
    sentence = refusal(data)
    expected = f"{key_path((*keys[:-1], misspelt))}: unknown key; did you mean {keys[-1]}?"
    assert sentence == expected


def test_a_key_like_no_other_is_answered_with_all() -> None:
    sentence = refusal(changed("tenants", 0, "zzz", 1))
    assert sentence.startswith("tenants[0].zzz: unknown key; the keys here are name, received, ")


@pytest.mark.parametrize("key", ["a\nb", "", "\ud800", "x" * 10_000, "a.b[0]"])
def test_a_strange_key_keeps_the_sentence_short_and_on_one_line(key: str) -> None:
    assert len(refusal(changed("tenants", 0, key, 1))) < 300
    assert len(refusal(changed("tenants", 0, "capability", key, 1))) < 300


NUMBERS: list[Keys] = [
    ("slot_s",),
    ("tenants", 0, "received", 1),
    ("tenants", 1, "received", 1, 2),
    ("tenants", 0, "capability", "2"),
    ("tenants", 0, "accuracy_pre"),
    ("tenants", 0, "accuracy_post"),
    ("tenants", 0, "overhead_s"),
]
INTEGERS: list[Keys] = [
    ("slots",),
    ("tenants", 0, "retraining_slots", "4"),
    ("tenants", 0, "min_gpcs"),
    ("initial", "instances", 0, "start"),
    ("initial", "instances", 0, "gpcs"),
    ("initial", "retrainings", 0, "slots_left"),
]


@pytest.mark.parametrize("keys", NUMBERS + INTEGERS, ids=key_path)
@pytest.mark.parametrize(
    "value", [-1, -0.5, NAN, INFINITY, -INFINITY, True, "1", [1.0], {"1": 1}, 10**300]
)
def test_what_is_no_number_of_use_is_refused_by_its_key(keys: Keys, value: object) -> None:
    assert refusal(changed(*keys, value)).startswith(f"{key_path(keys)}: ")


@pytest.mark.parametrize("keys", NUMBERS, ids=key_path)
@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
def test_a_number_that_is_not_finite_is_called_so(keys: Keys, value: float) -> None:
    assert " is not finite; " in refusal(changed(*keys, value))


@pytest.mark.parametrize("keys", INTEGERS, ids=key_path)
@pytest.mark.parametrize("value", [1.0, 1.5, None])
def test_integers_are_integers(keys: Keys, value: object) -> None:
    assert refusal(changed(*keys, value)).startswith(f"{key_path(keys)}: ")


@pytest.mark.parametrize("keys", [*INTEGERS[:3], *INTEGERS[4:], ("slot_s",)], ids=key_path)
def test_zero_is_refused_where_nothing_would_be_left(keys: Keys) -> None:
    assert refusal(changed(*keys, 0)).startswith(f"{key_path(keys)}: 0 is less than ")


@pytest.mark.parametrize("keys", NUMBERS[1:], ids=key_path)
def test_zero_is_a_number_elsewhere(keys: Keys) -> None:
    assert parse_problem(changed(*keys, 0)) != parse_problem(valid())


@pytest.mark.parametrize("keys", NUMBERS, ids=key_path)
def test_null_is_no_number(keys: Keys) -> None:
    assert refusal(changed(*keys, None)).startswith(f"{key_path(keys)}: ")


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("version",), 2, "version 1"),
        (("version",), True, "version 1"),
        (("version",), "1", "version 1"),
        (("version",), None, "version 1"),
        (("gpu",), "A100-40GBs", "A100-40GB"),
        (("gpu",), "", "A100-40GB"),
        (("gpu",), 100, "board"),
        (("tenants", 0, "retraining"), "maybe", '"required", or "optional"'),
        (("tenants", 0, "retraining"), None, '"required", or "optional"'),
        (("tenants", 0, "requests_after"), -1, "less than 0"),
        (("tenants", 0, "requests_after"), "1", "number"),
        (("charge",), "Paper", '"paper" or "survivors"'),
        (("charge",), None, '"paper" or "survivors"'),
        (("tenants",), [], "at least one tenant"),
        (("tenants",), {}, "not a list"),
        (("tenants",), None, "not a list"),
        (("tenants", 0), "bert", "not an object"),
        (("tenants", 0, "name"), "", "empty"),
        (("tenants", 0, "name"), "  ", "empty"),
        (("tenants", 0, "name"), "a\nb", "printed"),
        (("tenants", 0, "name"), "\ud800", "printed"),
        (("tenants", 0, "name"), 7, "not text"),
        (("tenants", 1, "name"), "bert", "tenants[0]"),
        (("tenants", 0, "accuracy_pre"), 1.01, "more than 1"),
        (("tenants", 0, "accuracy_post"), 85, "more than 1"),
        (("tenants", 0, "received"), 5, "not a list"),
        (("tenants", 0, "received"), [], "has 0 entries but slots is 3"),
        (("tenants", 0, "received"), [1, 2], "has 2 entries but slots is 3"),
        (("tenants", 1, "received", 1), [1, 2, 3, 4], "has 4 entries but slots is 3"),
        (("tenants", 1, "received", 0), [], "has 0 entries but slots is 3"),
        (("tenants", 0, "received", 1), [1], "not a number"),
        (("tenants", 1, "received", 1), 1, "not a list"),
        (("tenants", 0, "capability"), {}, "empty"),
        (("tenants", 0, "capability"), [60, 110], "not an object"),
        (("tenants", 0, "capability"), None, "not an object"),
        (("tenants", 0, "capability", "5"), 1, "1, 2, 3, 4 or 7"),
        (("tenants", 0, "capability", "01"), 1, "1, 2, 3, 4 or 7"),
        (("tenants", 0, "capability", "1g"), 1, "1, 2, 3, 4 or 7"),
        (("tenants", 0, "retraining_slots"), {}, "or null"),
        (("tenants", 0, "retraining_slots"), 45, "or null"),
        (("tenants", 0, "retraining_slots", "8"), 1, "1, 2, 3, 4 or 7"),
        (("initial",), [], "or null"),
        (("initial", "instances"), {}, "not a list"),
        (("initial", "instances", 0), 3, "start, gpcs and task"),
        (("initial", "instances", 0, "gpcs"), 5, "1, 2, 3, 4 or 7"),
        (("initial", "instances", 1, "start"), 3, "use 0 or 4"),
        (("initial", "instances", 0, "task"), "bert", "TENANT/inference"),
        (("initial", "instances", 0, "task"), "bert/serving", "TENANT/inference"),
        (("initial", "instances", 0, "task"), "/inference", "TENANT/inference"),
        (("initial", "instances", 0, "task"), 4, "TENANT/inference"),
        (("initial", "instances", 0, "task"), "bret/inference", "did you mean 'bert'?"),
        (("initial", "instances", 0, "task"), "zzz/inference", "bert or resnet"),
        (("initial", "instances", 0, "task"), "bert/retraining", "initial.retrainings"),
        (("initial", "instances", 2, "task"), "resnet/retraining", "initial.instances[1]"),
        (("initial", "retrainings"), None, "not a list"),
        (("initial", "retrainings", 0, "tenant"), "restnet", "did you mean 'resnet'?"),
        (("initial", "retrainings", 0, "tenant"), None, "not text"),
        (("initial", "retrainings", 0, "slots_left"), 4, "too short"),
    ],
)
def test_refused_by_key_with_a_remedy(keys: Keys, value: object, said: str) -> None:
    sentence = refusal(changed(*keys, value))
    assert sentence.startswith(f"{key_path(keys)}: ")
    assert said in sentence


def test_instances_held_before_slot_0_may_not_overlap() -> None:
    sentence = refusal(changed("initial", "instances", 2, {"start": 1, "gpcs": 1, "task": None}))
    assert sentence.startswith("initial.instances[2]: 1g@1 overlaps 2g@0 of initial.instances[0]")


def test_a_retraining_is_listed_once() -> None:
    data = changed("initial", "retrainings", 1, {"tenant": "resnet", "slots_left": 1})
    assert refusal(data).startswith("initial.retrainings[1].tenant: 'resnet' is listed twice")


def test_a_running_retraining_has_an_instance() -> None:
    sentence = refusal(changed("initial", "instances", 1, DELETED))
    assert sentence.startswith("initial.retrainings[0].tenant: ")
    assert "resnet/retraining" in sentence


def test_slots_left_may_fill_the_window() -> None:
    problem = parse_problem(changed("initial", "retrainings", 0, "slots_left", 3))
    assert problem.slots_left(problem.tenants[1]) == 3


def test_no_accuracy_is_needed_where_nothing_retrains() -> None:
    data = changed("tenants", 1, "accuracy_post", None)
    data["initial"] = None
    assert parse_problem(data).tenants[1].configurations == ()


@pytest.mark.parametrize("tenant", [0, 1], ids=["retraining to come", "retraining runs"])
def test_accuracy_post_is_needed_where_the_tenant_retrains(tenant: int) -> None:
    sentence = refusal(changed("tenants", tenant, "accuracy_post", None))
    assert sentence.startswith(f"tenants[{tenant}].accuracy_post: ")


def test_a_tenant_may_have_a_slash_in_its_name() -> None:
    data = changed("tenants", 0, "name", "nlp/bert")
    data["initial"]["instances"][0]["task"] = "nlp/bert/inference"
    initial = parse_problem(data).initial
    assert initial is not None
    assert initial.instances[0].task == Task("nlp/bert", Kind.INFERENCE)


def test_the_first_of_many_faults_is_told_and_the_rest_counted() -> None:
    data = changed("tenants", 0, "capability", {"1": -1, "2": -2, "7": -3})
    assert refusal(data).startswith("tenants[0].capability.1: -1 is less than 0; ")
    assert refusal(data).endswith(" (and 2 more)")


def test_an_unknown_key_is_told_before_other_faults() -> None:
    data = changed("slots", -1)
    data["tenants"][0]["min_gpc"] = data["tenants"][0].pop("min_gpcs")
    assert refusal(data) == "tenants[0].min_gpc: unknown key; did you mean min_gpcs? (and 1 more)"


def test_another_version_is_told_before_its_other_keys() -> None:
    data = changed("version", 2)
    data["windows"] = []
    assert refusal(data).startswith("version: 2 is not supported; ")


@pytest.mark.parametrize("data", [[], None, 3, "problem", [valid()]])
def test_a_problem_is_an_object(data: object) -> None:
    assert refusal(data).startswith("the problem is ")


def file_refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_problem(path)
    sentence = one_line(caught.value)
    assert path.name in sentence
    return sentence


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(valid()), encoding="utf-8")
    assert read_problem(path) == parse_problem(valid())
    path.write_text(json.dumps(valid()), encoding="utf-8-sig")
    assert read_problem(path) == parse_problem(valid())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"\xff\xfe{\x00}\x00", "UTF-8"),
        (b'{"version": "\xe9"}', "UTF-8"),
        (b'{"version": 1,\n "gpu" "A100-40GB"}', "line 2 column 8"),
        (b'{"version": 1', "line 1 column 14"),
        (b'{"version": 1} x', "line 1 column 16"),
        (b"[1, 2]", "a list"),
        (b"null", "null"),
        (b'"text"', "JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"version": 1, "version": 1}', "version: the key appears more than once"),
        (b'{"a": {"x": 1, "x": 2}, "a": 1}', ": a: the key appears more than once"),
        (b'{"slots": 9, "tenants": [{}, {"c": {"7": 1, "7": 1}}]}', "tenants[1].c.7: the key"),
        (b'{"verison": 1}', "did you mean version?"),
    ],
)
def test_a_file_that_is_no_problem(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "problem.json"
    path.write_bytes(content)
    assert said in file_refusal(path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "9" * 5000])
@pytest.mark.parametrize("key", ["slot_s", "slots"])
def test_numbers_that_json_reads_but_nobody_can_use(tmp_path: Path, key: str, number: str) -> None:
    path = tmp_path / "problem.json"
    text = json.dumps(changed(key, "HERE")).replace('"HERE"', number)
    path.write_text(text, encoding="utf-8")
    assert f": {key}: " in file_refusal(path)


def unreadable_missing(folder: Path) -> Path:
    return folder / "absent.json"


def unreadable_directory(folder: Path) -> Path:
    return folder


def unreadable_below_a_file(folder: Path) -> Path:
    (folder / "file").write_text("{}", encoding="utf-8")
    return folder / "file" / "problem.json"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (unreadable_missing, "no such file"),
        (unreadable_directory, "directory"),
        (unreadable_below_a_file, "cannot be read"),
    ],
)
def test_a_path_that_cannot_be_read(
    tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    assert said in file_refusal(make(tmp_path))


def test_a_path_with_a_newline_keeps_to_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_problem(tmp_path / "a\nb.json")
    assert "no such file" in one_line(caught.value)


def test_the_data_is_not_changed() -> None:
    data = valid()
    parse_problem(data)
    assert data == valid()


NAMES = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=5)
REQUESTS = st.floats(0, 1e6) | st.integers(0, 100).map(float)
UNIT = st.floats(0, 1)


@st.composite
def tenants(draw: st.DrawFn, name: str, gpu: Board, slots: int) -> Tenant:
    sizes = st.sampled_from(gpu.sizes)
    scenario = st.lists(REQUESTS, min_size=slots, max_size=slots).map(tuple)
    lengths = st.dictionaries(sizes, st.integers(1, 300), min_size=1)
    alone = st.builds(RetrainingConfiguration, UNIT, st.just({}) | lengths)
    named = st.builds(RetrainingConfiguration, UNIT, lengths, NAMES, st.just(0.0) | st.just(4.0))
    several = st.lists(named, min_size=1, max_size=3, unique_by=lambda choice: choice.name)
    return Tenant(
        name=name,
        received=tuple(draw(st.lists(scenario, min_size=1, max_size=3))),
        capability=draw(st.dictionaries(sizes, REQUESTS, min_size=1)),
        accuracy_pre=draw(UNIT),
        configurations=tuple(draw(st.lists(alone, max_size=1) | several)),
        overhead_s=draw(st.floats(0, 100)),
        min_gpcs=draw(st.integers(1, 9)),
        retraining_optional=draw(st.booleans()),
        requests_after=draw(st.sampled_from([0.0, 0.25, 3.0])),
    )


@st.composite
def initials(draw: st.DrawFn, held: list[Tenant], gpu: Board, slots: int) -> Initial:
    names = [tenant.name for tenant in held]
    able = {tenant.name: tenant.configurations for tenant in held if tenant.configurations}
    retraining = list(able)
    instances = []
    for place in draw(st.sampled_from(placement_sets(gpu))):
        tasks = [None, *(Task(name, Kind.INFERENCE) for name in names)]
        tasks += [Task(name, Kind.RETRAINING) for name in retraining]
        task = draw(st.sampled_from(tasks))
        if task is not None and task.kind is Kind.RETRAINING:
            retraining.remove(task.tenant)
        instances.append(Instance(place.start, place.gpcs, task))
    running = (
        RunningRetraining(name, draw(st.integers(1, slots)), draw(st.sampled_from(choices)).name)
        for name, choices in able.items()
        if name not in retraining
    )
    return Initial(tuple(instances), tuple(running))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    gpu = board(draw(st.sampled_from(["A100-40GB", "A30-24GB"])))
    slots = draw(st.integers(1, 4))
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    drawn = [draw(tenants(name, gpu, slots)) for name in names]
    return Problem(
        board=gpu,
        slot_s=draw(st.floats(0.5, 10)),
        slots=slots,
        charge=draw(st.sampled_from(Charge)),
        tenants=tuple(drawn),
        initial=draw(st.none() | initials(drawn, gpu, slots)),
    )


@settings(deadline=None)
@given(problems())
def test_a_problem_survives_its_file(problem: Problem) -> None:
    text = json.dumps(problem_to_json(problem), allow_nan=False)
    assert parse_problem(json.loads(text)) == problem


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.sampled_from(all_keys(valid())), JSON)
def test_any_value_under_any_key_is_taken_or_refused_in_one_line(keys: Keys, value: object) -> None:
    data = changed(*keys, copy.deepcopy(value))
    try:
        parse_problem(data)
    except InputError as error:
        one_line(error)
