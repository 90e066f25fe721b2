"""Problem files in which a tenant has several ways to retrain."""

import copy
from typing import Any

import pytest
from support.make import several

from migrator.core.errors import InputError
from migrator.core.problem import RetrainingConfiguration, RunningRetraining
from migrator.planning.problem_file import parse_problem, problem_to_json

BERT: dict[str, Any] = {
    "name": "bert",
    "received": [1, 2, 3],
    "capability": {"1": 60},
    "accuracy_pre": 0.6,
    "retraining": {
        "configurations": [
            {"name": "all", "accuracy_post": 0.9, "slots": {"1": 3, "2": 2}},
            {"name": "half", "accuracy_post": 0.8, "slots": {"2": 1}, "memory_gib": 8},
        ]
    },
    "overhead_s": 0,
    "min_gpcs": 1,
}
PROBLEM: dict[str, Any] = {
    "version": 1,
    "gpu": "A100-40GB",
    "slot_s": 1.0,
    "slots": 3,
    "charge": "paper",
    "tenants": [BERT],
    "initial": None,
}
RUNNING: dict[str, Any] = {
    "instances": [{"start": 0, "gpcs": 1, "task": "bert/retraining"}],
    "retrainings": [{"tenant": "bert", "slots_left": 2, "configuration": "all"}],
}


def changed(*keys_and_value: Any) -> dict[str, Any]:
    """The problem with one value of it replaced or added."""
    data = copy.deepcopy(PROBLEM)
    *path, last, value = keys_and_value
    parent: Any = data
    for key in path:
        parent = parent[key]
    parent[last] = value
    return data


def refusal(data: dict[str, Any]) -> str:
    with pytest.raises(InputError) as refused:
        parse_problem(data)
    return str(refused.value)


def test_the_configurations_are_read_in_their_order() -> None:
    (tenant,) = parse_problem(PROBLEM).tenants
    (first, _) = several(all=(0.9, {1: 3, 2: 2}), half=(0.8, {2: 1}))
    assert tenant.configurations == (first, RetrainingConfiguration(0.8, {2: 1}, "half", 8.0))
    assert not tenant.retraining_optional


def test_they_may_be_optional() -> None:
    problem = parse_problem(changed("tenants", 0, "retraining", "optional", True))
    assert problem.tenants[0].retraining_optional


def test_a_running_retraining_names_its_configuration() -> None:
    problem = parse_problem(changed("initial", RUNNING))
    assert problem.initial is not None
    assert problem.initial.retrainings == (RunningRetraining("bert", 2, "all"),)
    assert parse_problem(problem_to_json(problem)) == problem


AT = ("tenants", 0, "retraining", "configurations")


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        (
            (*AT, 1, "accuracy"),
            0.9,
            "tenants[0].retraining.configurations[1].accuracy: unknown key; did you mean "
            "accuracy_post?",
        ),
        (
            (*AT, 1, "accuracy_post"),
            2,
            "tenants[0].retraining.configurations[1].accuracy_post: 2 is more than 1; give the "
            "accuracy after it, a number from 0 to 1",
        ),
        (
            (*AT, 1, "name"),
            "all",
            "tenants[0].retraining.configurations[1].name: 'all' is already the name of "
            "tenants[0].retraining.configurations[0]; give every configuration a name of its own",
        ),
        (
            (*AT, 0, "slots", "5"),
            1,
            "tenants[0].retraining.configurations[0].slots.5: A100-40GB has no instance size '5'; "
            "use 1, 2, 3, 4 or 7 GPCs",
        ),
        (
            (*AT, 1, "slots", "1"),
            2,
            "tenants[0].retraining.configurations[1].slots.1: an instance of 1 has 4.75 GiB and "
            "memory_gib is 8; leave the size out",
        ),
        (
            (*AT,),
            [],
            "tenants[0].retraining.configurations: an empty list is not enough; give a list of at "
            "least one {name, accuracy_post, slots}",
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
        (
            ("initial",),
            RUNNING
            | {"retrainings": [{"tenant": "bert", "slots_left": 2, "configuration": "halve"}]},
            "initial.retrainings[0].configuration: bert has no configuration 'halve'; did you mean "
            "'half'?",
        ),
    ],
)
def test_refused_by_key_with_a_remedy(keys: tuple[Any, ...], value: Any, sentence: str) -> None:
    assert refusal(changed(*keys, value)) == sentence
