"""A policy has one look on every page."""

from __future__ import annotations

import pytest

from migrator.policies.registry import policies
from migrator.report.paint import policy_paints


def test_packaged_policies_look_different_and_any_other_one_differs_from_them() -> None:
    packaged = [*policies(), "best static split"]
    own = [policy_paints([name])[0] for name in packaged]
    assert len(set(own)) == len(packaged)
    assert policy_paints(packaged) == tuple(own)
    for number in range(40):
        (other,) = policy_paints([f"my.module:policy_{number}"])
        assert other not in own


@pytest.mark.parametrize("policy", ["migrator", "oracle", "my.module:policy"])
def test_runs_of_one_policy_look_different(policy: str) -> None:
    paints = policy_paints([policy] * 4)
    assert len(set(paints)) == 4
    assert paints[0] == policy_paints([policy])[0]
