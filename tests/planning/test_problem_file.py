"""The problem file: what it means, what it refuses and with which sentence."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.make import only, several
from support.problems import problems

from migrator.core.catalogue import board
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
    return with_value(valid(), *path_and_value)


def with_value(data: dict[str, Any], *path_and_value: Any) -> dict[str, Any]:
    *path, value = path_and_value
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


@pytest.mark.parametrize("keys", all_keys(valid()), ids=key_path)
def test_every_key_is_required(keys: Keys) -> None:
    sentence = refusal(changed(*keys, DELETED))
    assert sentence.startswith(f"{key_path(keys)}: the key is missing; give ")
    assert "None" not in sentence


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("version",), 2, "version 1"),
        (("slot_s",), float("nan"), "not finite"),
        (("slots",), 1.0, "not an integer"),
        (("slots",), 0, "less than 1"),
        (("tenants", 0, "capability", "2"), True, "not a number"),
        (("tenants", 0, "overhead_s"), -0.5, "less than 0"),
        (("gpu",), "A100-40GBs", "A100-40GB"),
        (("tenants", 0, "retraining"), "maybe", '"required", or "optional"'),
        (("tenants", 0, "requests_after"), -1, "less than 0"),
        (("charge",), "Paper", '"paper" or "survivors"'),
        (("tenants",), [], "at least one tenant"),
        (("tenants", 0, "name"), "", "empty"),
        (("tenants", 0, "name"), "a\nb", "printed"),
        (("tenants", 1, "name"), "bert", "tenants[0]"),
        (("tenants", 0, "accuracy_pre"), 1.01, "more than 1"),
        (("tenants", 0, "received"), 5, "not a list"),
        (("tenants", 0, "received"), [1, 2], "has 2 entries but slots is 3"),
        (("tenants", 0, "capability"), {}, "empty"),
        (("tenants", 0, "capability", "5"), 1, "1, 2, 3, 4 or 7"),
        (("tenants", 0, "retraining_slots"), {}, "or null"),
        (("initial",), [], "or null"),
        (("initial", "instances", 0, "gpcs"), 5, "1, 2, 3, 4 or 7"),
        (("initial", "instances", 1, "start"), 3, "use 0 or 4"),
        (("initial", "instances", 0, "task"), "bert", "TENANT/inference"),
        (("initial", "instances", 0, "task"), "bret/inference", "did you mean 'bert'?"),
        (("initial", "instances", 0, "task"), "bert/retraining", "initial.retrainings"),
        (("initial", "instances", 2, "task"), "resnet/retraining", "initial.instances[1]"),
        (("initial", "retrainings", 0, "tenant"), "restnet", "did you mean 'resnet'?"),
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
        (b"\xff\xfe{\x00}\x00", "UTF-8"),
        (b'{"version": 1,\n "gpu" "A100-40GB"}', "line 2 column 8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"slots": 9, "tenants": [{}, {"c": {"7": 1, "7": 1}}]}', "tenants[1].c.7: the key"),
        (b'{"verison": 1}', "did you mean version?"),
    ],
)
def test_a_file_that_is_no_problem(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "problem.json"
    path.write_bytes(content)
    assert said in file_refusal(path)


@settings(deadline=None)
@given(problems(max_tenants=3, max_configurations=3))
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


# Tenants with several ways to retrain.

RUNNING: dict[str, Any] = {
    "instances": [{"start": 0, "gpcs": 1, "task": "bert/retraining"}],
    "retrainings": [{"tenant": "bert", "slots_left": 2, "configuration": "all"}],
}
AT = ("tenants", 0, "retraining", "configurations")


def configured(*path_and_value: Any) -> dict[str, Any]:
    """The valid problem in which bert has two ways to retrain, with one value replaced."""
    data = changed("initial", None)
    bert = data["tenants"][0]
    del bert["accuracy_post"], bert["retraining_slots"]
    whole = {"name": "all", "accuracy_post": 0.9, "slots": {"1": 3, "2": 2}}
    half = {"name": "half", "accuracy_post": 0.8, "slots": {"2": 1}, "memory_gib": 8}
    bert["retraining"] = {"configurations": [whole, half], "optional": True}
    return with_value(data, *path_and_value)


def test_the_configurations_are_read_in_their_order() -> None:
    problem = parse_problem(configured("initial", RUNNING))
    tenant = problem.tenants[0]
    (first, _) = several(all=(0.9, {1: 3, 2: 2}), half=(0.8, {2: 1}))
    assert tenant.configurations == (first, RetrainingConfiguration(0.8, {2: 1}, "half", 8.0))
    assert tenant.retraining_optional
    assert problem.initial is not None
    assert problem.initial.retrainings == (RunningRetraining("bert", 2, "all"),)
    assert parse_problem(problem_to_json(problem)) == problem


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        (
            (*AT, 1, "name"),
            "all",
            "tenants[0].retraining.configurations[1].name: 'all' is already the name of "
            "tenants[0].retraining.configurations[0]; give every configuration a name of its own",
        ),
        (
            (*AT, 1, "slots", "1"),
            2,
            "tenants[0].retraining.configurations[1].slots.1: an instance of 1 has 4.75 GiB and "
            "memory_gib is 8; leave the size out",
        ),
        (
            ("tenants", 0, "accuracy_post"),
            0.7,
            "tenants[0].accuracy_post: retraining.configurations are given as well; leave it out: "
            "every configuration has its own",
        ),
        (
            ("tenants", 0, "retraining"),
            "required",
            "tenants[0].accuracy_post: the key is missing; give the accuracy after retraining, a "
            "number from 0 to 1",
        ),
        (
            ("initial",),
            RUNNING | {"retrainings": [{"tenant": "bert", "slots_left": 2}]},
            "initial.retrainings[0].configuration: bert has no configuration ''; name one of all "
            "or half",
        ),
    ],
)
def test_wrong_configurations_are_refused_by_key(keys: Keys, value: Any, sentence: str) -> None:
    assert refusal(configured(*keys, value)) == sentence
