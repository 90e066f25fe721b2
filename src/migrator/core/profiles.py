"""The models MIGRator knows: packaged profiles, used until measured ones replace them.

What was measured, what was assumed and why is written in profiles.json itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from migrator.core.curve import Curve
from migrator.core.profile import Overhead, Profile
from migrator.core.registry import pick


@dataclass(frozen=True)
class _Model:
    """A model and its profiles by board."""

    name: str
    profiles: dict[str, Profile] = field(default_factory=dict)


@cache
def profiles() -> dict[tuple[str, str], Profile]:
    """Every packaged profile by model and board."""
    text = files("migrator.core").joinpath("profiles.json").read_text(encoding="utf-8")
    found = [profile_of(entry) for entry in json.loads(text)["profiles"]]
    return {(each.model, each.board): each for each in found}


def profile(model: str, board: str) -> Profile:
    """The model's packaged profile for a board; an unknown model is answered with the nearest.

    Where nobody has measured the model on that board, its profile of another one stands in.
    """
    models: dict[str, _Model] = {}
    for (name, measured_on), each in profiles().items():
        models.setdefault(name, _Model(name)).profiles[measured_on] = each
    known = pick("model", model, models).profiles
    return known[board] if board in known else on_board(next(iter(known.values())), board)


def on_board(profile: Profile, board: str) -> Profile:
    """The profile used on another board, by its number of SMs: an approximation, and it says so."""
    if profile.board == board:
        return profile
    told = f"{profile.provenance}; used on {board} by its number of SMs, an approximation"
    return replace(profile, board=board, provenance=told)


def profile_of(entry: Mapping[str, Any]) -> Profile:
    """The profile that an entry in the layout of profiles.json holds."""
    return Profile(
        model=entry["model"],
        board=entry["board"],
        latency_ms={int(batch): _curve(each) for batch, each in entry["latency_ms"].items()},
        training_ratio=entry["training_ratio"],
        interference=entry["interference"],
        contention=entry["contention"],
        overhead=Overhead(**entry["overhead"]),
        provenance=entry["provenance"],
    )


def _curve(by_sms: Mapping[str, float]) -> Curve:
    return Curve(tuple(sorted((float(sms), value) for sms, value in by_sms.items())))
