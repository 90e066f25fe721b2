"""A policy of a user's own, named by its import path."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from migrator.core.errors import InputError
from migrator.policies.fixed_shares import Static
from migrator.policies.policy import Sharing
from migrator.policies.registry import about, policy

MODULE = '''
"""Half and half."""

from migrator.policies.policy import Policy
from migrator.policies.fixed_shares import Static


class Half(Static):
    def __init__(self):
        super().__init__(4, 3)


class Plain:
    summary, sharing, sight, routing = "holds", Static.sharing, Static.sight, Static.routing
    every_s, on_completion, decide = None, False, None


class Derived(Policy):
    summary, decide = "holds", None


class Lacking:
    summary = "decides nothing"


class Asking:
    def __init__(self, more):
        pass


NUMBER = 7
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that Python finds."""
    (tmp_path / "own_policies.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_policies"


def test_it_is_made_from_its_class_and_goes_by_its_path(own: str) -> None:
    made = policy(f"{own}:Half")
    assert isinstance(made, Static)
    assert (made.name, made.sharing) == (f"{own}:Half", Sharing.MIG)
    assert policy(made.name).name == made.name
    assert not made.estimates
    assert about(made.name) == "Half and half."


def test_one_that_does_not_say_so_may_plan_with_estimates(own: str) -> None:
    assert policy(f"{own}:Plain").estimates


def test_one_that_derives_has_the_defaults_of_what_it_leaves_out(own: str) -> None:
    made = policy(f"{own}:Derived")
    assert (made.summary, made.sharing, made.every_s) == ("holds", Sharing.MIG, None)
    assert made.on_completion
    assert not made.estimates


def test_it_can_be_sent_to_another_process(own: str) -> None:
    made = policy(f"{own}:Half")
    assert pickle.loads(pickle.dumps(made)).name == made.name


def test_the_name_of_a_packaged_one_stays(own: str) -> None:
    policy(f"{own}:Half")
    assert policy("static-4-3").name == "static-4-3"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("own_policies:Lacking", "lacks sharing, sight, routing, every_s, on_completion, decide"),
        ("own_policies:Asking", "it must take no arguments"),
        ("own_policies:NUMBER", "is no function and no class"),
        ("own_policies:Absent", "policy: own_policies has no Absent"),
        ("absent_policies:Half", "policy: absent_policies cannot be imported"),
        ("own-policies:Half", "write package.module:Class"),
    ],
)
@pytest.mark.usefixtures("own")
def test_what_is_no_policy_is_refused(path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        policy(path)
