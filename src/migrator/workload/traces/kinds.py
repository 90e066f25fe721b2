"""The kinds of arrivals the generator knows: what was measured, and the model fitted to it.

The model is told in `generator.py`. Its numbers follow from the measured ones in closed form
(docs/traces.md), so a kind is a row of numbers and no data travels with the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from migrator.workload.traces.statistics import Statistics


@dataclass(frozen=True)
class Swell:
    """A part of the logarithm of the rate that comes and goes."""

    variance: float
    time_s: float
    """Its correlation falls by 1/e in this time; 0: new in every second."""


@dataclass(frozen=True)
class Switch:
    """Arrivals that jump between two levels: bursts and silence, or rare plateaus."""

    on_share: float
    keep: float
    """Probability per second that nothing is decided anew."""
    off_level: float = 0.0
    """The rate when off, as a part of the rate when on."""


@dataclass(frozen=True)
class Kind:
    """One kind of arrivals."""

    name: str
    summary: str
    """One line for people who choose."""
    provenance: str
    """Which public data the numbers were measured on, and its licence."""
    file_name: str | None
    """What the trace is called where MIGRATOR_DATA points; None: from theory."""
    measured: Statistics
    swells: tuple[Swell, ...] = ()
    switch: Switch | None = None
    any_rate: bool = False
    """Drawn at the rate asked for, not at the measured one and then scaled."""


_KINDS = (
    Kind(
        name="alibaba",
        summary="LLM serving: a rate that drifts over hours, restless from second to second",
        provenance="Alibaba Model Studio inference, client 73 of alibaba/ServeGen, resampled from "
        "its published rates and inter-arrival fits, 40,200 s; Apache-2.0",
        file_name="alibaba_servegen_client73.csv",
        measured=Statistics(40_200, 106.096, 14.552, (0.385, 0.378, 0.376, 0.368), 0.000),
        swells=(Swell(0.0700, 0.0), Swell(0.0505, 10_000.0)),
    ),
    Kind(
        name="alibaba-steady",
        summary="LLM serving: a rate that swings slowly and is smooth between",
        provenance="Alibaba Model Studio inference, client 101 of alibaba/ServeGen, resampled from "
        "its published rates and inter-arrival fits, 40,200 s; Apache-2.0",
        file_name="alibaba_servegen_client101.csv",
        measured=Statistics(40_200, 38.040, 9.532, (0.754, 0.752, 0.739, 0.703), 0.000),
        swells=(Swell(0.0290, 0.0), Swell(0.1735, 3_000.0)),
    ),
    Kind(
        name="azure",
        summary="LLM conversations: close to Poisson, the rate wanders over minutes",
        provenance="Azure LLM inference trace 2023, conversation, of Azure/AzurePublicDataset, "
        "3,502 s; CC-BY 4.0",
        file_name="azure_llm2023_conv.csv",
        measured=Statistics(3_502, 5.530, 1.386, (0.220, 0.202, 0.154, 0.138), 0.011),
        swells=(Swell(0.0170, 0.0), Swell(0.0500, 450.0)),
    ),
    Kind(
        name="azure-bursty",
        summary="LLM code completion: bursts of seconds, silence in three seconds of four",
        provenance="Azure LLM inference trace 2023, code, of Azure/AzurePublicDataset, "
        "3,436 s; CC-BY 4.0",
        file_name="azure_llm2023_code.csv",
        measured=Statistics(3_436, 2.567, 13.182, (0.757, 0.256, 0.047, 0.006), 0.734),
        swells=(Swell(0.0650, 0.0), Swell(0.3700, 25.0)),
        switch=Switch(on_share=0.27, keep=0.87),
    ),
    Kind(
        name="twitter",
        summary="tweets: smooth, with a plateau of several minutes every few hours",
        provenance="tweets per second of August 2021, 40,000 s; no licence stated",
        file_name="twitter_2021.csv",
        measured=Statistics(40_000, 72.931, 23.990, (0.955, 0.945, 0.878, 0.605), 0.000),
        swells=(Swell(0.0040, 20.0), Swell(0.0080, 200.0), Swell(0.0290, 10_000.0)),
        switch=Switch(on_share=0.056, keep=0.998, off_level=0.282),
    ),
    Kind(
        name="batch",
        summary="batch tasks: created in clumps, nothing in seven seconds of ten",
        provenance="Alibaba cluster trace v2017, batch task creations, of alibaba/clusterdata, "
        "its busiest 18,000 s; for research use",
        file_name="alibaba_v2017_batchtask.csv",
        measured=Statistics(18_000, 2.209, 11.806, (0.176, 0.075, 0.047, 0.018), 0.709),
        swells=(Swell(0.0200, 0.0), Swell(0.2000, 4.0), Swell(0.2500, 80.0), Swell(0.1000, 2e3)),
        switch=Switch(on_share=0.30, keep=0.10),
    ),
    Kind(
        name="poisson",
        summary="independent arrivals at a constant rate",
        provenance="theory, shown at 10 requests per second; no data",
        file_name=None,
        measured=Statistics(0, 10.0, 1.0, (0.0, 0.0, 0.0, 0.0), 0.000),
        any_rate=True,
    ),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _KINDS}
"""Every kind by name."""
