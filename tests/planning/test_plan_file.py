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


@pytest.mark.parametrize("key", ["charge", "preinitialization"])
def test_what_our_output_carries_beside_the_plan_is_ignored(key: str) -> None:
    assert parse_plan({**printed(), key: {"any": ["thing"]}}) == PLAN


def test_claims_are_those_of_the_file() -> None:
    assert parse_claims(printed()) == Claims(0.1, "within 10.00%")
    silent = {key: value for key, value in printed().items() if key not in ("gap", "status")}
    assert parse_claims(silent) == Claims()


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("goodput",), "100", "not a number"),
        (("retrainings", 0, "start"), -1, "less than 0"),
        (("retrainings", 0, "start"), 1.0, "not an integer"),
        (("retrainings", 0, "gpcs"), 0, "less than 1"),
        (("slots", 1, "instances", 0, "start"), -1, "less than 0"),
        (("slots", 1, "instances", 0, "task"), "bert", "TENANT/retraining"),
    ],
)
def test_refused_by_key_with_a_remedy(keys: Keys, value: object, said: str) -> None:
    data = printed()
    at(data, keys[:-1])[keys[-1]] = value
    sentence = refusal(data)
    assert sentence.startswith(f"{key_path(keys)}: ")
    assert said in sentence


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(printed()), encoding="utf-8")
    assert read_plan(path) == PLAN


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
