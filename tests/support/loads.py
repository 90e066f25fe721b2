"""Loads as tests send them, and what must be true of every one."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from migrator.core.outcome import ClientTally, LoadOutcome
from migrator.load.requests import schedule
from migrator.load.run import LoadSettings, load, request_samples_of
from migrator.workload.live import LiveScenario


def loaded(live: LiveScenario, url: str, **keys: Any) -> LoadOutcome:
    settings = LoadSettings(url, windows=keys.pop("windows", live.scenario.windows), **keys)
    return asyncio.run(load(live, settings))


def labels_due(live: LiveScenario, first: int = 0) -> list[Counter[int]]:
    """Of every tenant, how often each label is asked."""
    asked = [request_samples_of(tenant) for tenant in live.tenants]
    due = schedule(live.scenario, [0, 1], asked, first, live.scenario.windows)
    return [
        Counter(questions.samples.labels[due.row[due.tenant == place]].tolist())
        for place, questions in enumerate(asked)
    ]


def balanced(outcome: LoadOutcome) -> bool:
    tallies: list[ClientTally] = [outcome.whole, *outcome.tenants.values()]
    tallies += [window.whole for window in outcome.windows]
    tallies += [tally for window in outcome.windows for tally in window.tenants.values()]
    return all(tally.balance == 0 for tally in tallies)
