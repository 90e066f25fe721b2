"""The plan as JSON: the printed form, the round trip, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.core.errors import InputError
from migrator.core.problem import Allocation, Claims, Instance, Kind, Plan, Retraining, Task
from migrator.io.strict import key_path
from migrator.planning.plan_file import parse_claims, parse_plan, plan_to_json, read_plan

Keys = tuple[str | int, ...]

PLAN = Plan(
    goodput=100.0,
    upper_bound=110.0,
    solver="exact",
    solve_s=0.25,
    retrainings=(Retraining("bert", 0, 1, 4),),
    slots=(
        Allocation(
            (
                Instance(0, 4, Task("bert", Kind.RETRAINING)),
                Instance(4, 3, Task("bert", Kind.INFERENCE)),
            )
        ),
        Allocation((Instance(0, 7, Task("bert", Kind.INFERENCE)), Instance(0, 1, None))),
    ),
)


def printed() -> dict[str, Any]:
    """PLAN as the issue prints plans."""
    return {
        "goodput": 100.0,
        "upper_bound": 110.0,
        "gap": 0.1,
        "solver": "exact",
        "solve_s": 0.25,
        "retrainings": [{"tenant": "bert", "start": 0, "end": 1, "gpcs": 4}],
        "slots": [
            {
                "instances": [
                    {"start": 0, "gpcs": 4, "task": "bert/retraining"},
                    {"start": 4, "gpcs": 3, "task": "bert/inference"},
                ]
            },
            {
                "instances": [
                    {"start": 0, "gpcs": 7, "task": "bert/inference"},
                    {"start": 0, "gpcs": 1, "task": None},
                ]
            },
        ],
        "status": "within 10.00%",
        "later_goodput": 0.0,
    }


def at(data: Any, keys: Keys) -> Any:
    for key in keys:
        data = data[key]
    return data


def refusal(data: object) -> str:
    with pytest.raises(InputError) as caught:
        parse_plan(data)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert ";" in sentence, "what is wrong; the remedy"
    return sentence


def test_printed_as_the_format_says_and_in_its_order() -> None:
    assert plan_to_json(PLAN) == printed()
    assert list(plan_to_json(PLAN)) == list(printed())


def test_read_back() -> None:
    assert parse_plan(printed()) == PLAN


def test_gap_may_be_absent() -> None:
    data = printed()
    del data["gap"]
    assert parse_plan(data) == PLAN


@pytest.mark.parametrize("key", ["charge", "preinitialization"])
def test_what_our_output_carries_beside_the_plan_is_ignored(key: str) -> None:
    assert parse_plan({**printed(), key: {"any": ["thing"]}}) == PLAN


def test_claims_are_those_of_the_file() -> None:
    assert parse_claims(printed()) == Claims(0.1, "within 10.00%")
    silent = {key: value for key, value in printed().items() if key not in ("gap", "status")}
    assert parse_claims(silent) == Claims()


def test_goodput_may_be_negative() -> None:
    assert parse_plan({**printed(), "goodput": -3.5}).goodput == -3.5


LEFT_OUT = ("gap", "later_goodput")
REQUIRED: list[Keys] = [
    *((key,) for key in printed() if key not in {"status", *LEFT_OUT}),
    *(("retrainings", 0, key) for key in ("tenant", "start", "end", "gpcs")),
    ("slots", 1, "instances"),
    *(("slots", 0, "instances", 1, key) for key in ("start", "gpcs", "task")),
]


@pytest.mark.parametrize("keys", REQUIRED, ids=key_path)
def test_every_other_key_is_required(keys: Keys) -> None:
    data = printed()
    del at(data, keys[:-1])[keys[-1]]
    assert refusal(data).startswith(f"{key_path(keys)}: the key is missing; give ")


@pytest.mark.parametrize("keys", [*REQUIRED, *((key,) for key in LEFT_OUT)], ids=key_path)
def test_a_misspelt_key_is_answered_with_the_right_one(keys: Keys) -> None:
    data = printed()
    parent = at(data, keys[:-1])
    parent[f"{keys[-1]}x"] = parent.pop(keys[-1])
    expected = f"{key_path(keys)}x: unknown key; did you mean {keys[-1]}?"
    assert refusal(data) == expected


@pytest.mark.parametrize("keys", [*REQUIRED, *((key,) for key in LEFT_OUT)], ids=key_path)
@pytest.mark.parametrize("value", [True, float("nan"), float("-inf"), {"a": 1}])
def test_a_value_of_another_kind_is_refused_by_its_key(keys: Keys, value: object) -> None:
    data = printed()
    at(data, keys[:-1])[keys[-1]] = value
    assert refusal(data).startswith(f"{key_path(keys)}: ")


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("goodput",), "100", "not a number"),
        (("gap",), None, "not a number"),
        (("solve_s",), -1, "less than 0"),
        (("retrainings", 0, "start"), -1, "less than 0"),
        (("retrainings", 0, "start"), 1.0, "not an integer"),
        (("retrainings", 0, "gpcs"), 0, "less than 1"),
        (("slots", 1), [], "not an object"),
        (("slots", 1, "instances", 0, "start"), -1, "less than 0"),
        (("slots", 1, "instances", 0, "task"), "bert", "TENANT/retraining"),
        (("slots", 1, "instances", 0, "task"), "bert/idle", "TENANT/retraining"),
    ],
)
def test_refused_by_key_with_a_remedy(keys: Keys, value: object, said: str) -> None:
    data = printed()
    at(data, keys[:-1])[keys[-1]] = value
    sentence = refusal(data)
    assert sentence.startswith(f"{key_path(keys)}: ")
    assert said in sentence


@pytest.mark.parametrize("data", [[], None, "plan"])
def test_a_plan_is_an_object(data: object) -> None:
    assert refusal(data).startswith("the plan is ")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(printed()), encoding="utf-8")
    assert read_plan(path) == PLAN


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "the plan is an empty list"),
        ('{"a": [{"b": 0, "b": 0}]}', r"a\[0\].b: the key appears"),
    ],
)
def test_a_file_that_is_no_plan(tmp_path: Path, content: str, said: str) -> None:
    """What cannot be read as JSON at all is tested with problem files."""
    path = tmp_path / "plan.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=rf"plan\.json: {said}.*; "):
        read_plan(path)


NAMES = st.text(min_size=1, max_size=4).filter(lambda name: name.isprintable())
TASKS = st.builds(Task, NAMES, st.sampled_from(Kind))
INSTANCES = st.builds(Instance, st.integers(0, 7), st.integers(1, 7), st.none() | TASKS)
ALLOCATIONS = st.builds(Allocation, st.lists(INSTANCES, max_size=7).map(tuple))
RETRAININGS = st.builds(
    Retraining, NAMES, st.integers(0, 199), st.integers(1, 200), st.integers(1, 7)
)
PLANS = st.builds(
    Plan,
    goodput=st.floats(-1e9, 1e9),
    upper_bound=st.floats(-1e9, 1e9),
    solver=st.sampled_from(["exact", "ilp"]),
    solve_s=st.floats(0, 1e4),
    retrainings=st.lists(RETRAININGS, max_size=3).map(tuple),
    slots=st.lists(ALLOCATIONS, max_size=4).map(tuple),
)


@settings(deadline=None)
@given(PLANS)
def test_a_plan_survives_its_file(plan: Plan) -> None:
    assert parse_plan(json.loads(json.dumps(plan_to_json(plan)))) == plan
