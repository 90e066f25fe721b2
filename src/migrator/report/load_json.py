"""A load as JSON: the same figures in all, per tenant, and per window and tenant."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from migrator.core.load_outcome import ClientTally, LoadOutcome

Json = dict[str, Any]


def load_json(outcome: LoadOutcome) -> Json:
    """Everything counted in a load, ready for `json.dumps`."""
    return {
        "scenario": outcome.scenario,
        "url": outcome.url,
        "seed": outcome.seed,
        "speed": outcome.speed,
        "window_s": outcome.window_s,
        "lag_p99_s": outcome.lag_p99_s,
        "ended": outcome.ended,
        **_tally(outcome.whole),
        "tenants": {name: _tally(each) for name, each in outcome.tenants.items()},
        "windows": [
            {
                "window": each.window,
                **_tally(each.whole),
                "tenants": {name: _tally(tally) for name, tally in each.tenants.items()},
            }
            for each in outcome.windows
        ],
        "seconds": {name: asdict(each) for name, each in outcome.seconds.items()},
    }


def _tally(tally: ClientTally) -> Json:
    return {
        **asdict(tally),
        "in_time": tally.in_time,
        "goodput_share": tally.goodput_share,
        "slo_attainment": tally.slo_attainment,
        "accuracy": tally.accuracy,
    }
