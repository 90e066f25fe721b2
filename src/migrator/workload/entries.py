"""The scenario file, version 1, as it is written: its keys, their ranges and defaults.

Descriptions serve twice: in the JSON schema, and after `give` where a value is refused.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from migrator.core.scenario import HIGHEST_SEED, MOST_WINDOWS
from migrator.io.strict import MAX_NUMBER, Entry, Parts
from migrator.workload.cluster_entries import MOST_TENANTS, ClusterEntry, GpuEntry
from migrator.workload.live_entries import LiveEntry, LiveTenantEntry

VERSION = 1

MAX_WINDOW_S = 10_000
MAX_OFFSET_S = 10_000_000
MAX_BATCH = 256

_Accuracy = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, le=MAX_NUMBER, allow_inf_nan=False)]
_Offset = Annotated[int, Field(ge=0, le=MAX_OFFSET_S)]

_EITHER_ARRIVALS = ConfigDict(
    json_schema_extra={"oneOf": [{"required": ["trace"]}, {"required": ["generator", "mean_rps"]}]}
)
_EITHER_RETRAINING = ConfigDict(
    json_schema_extra={"oneOf": [{"required": ["dataset"]}, {"required": ["windows"]}]}
)
_MODEL_OR_PROFILE = ConfigDict(
    json_schema_extra={"anyOf": [{"required": ["model"]}, {"required": ["profile"]}]}
)


class ArrivalsEntry(Entry):
    """Where a tenant's requests come from: a trace file, or the generator."""

    model_config = _EITHER_ARRIVALS

    trace: str | None = Field(
        default=None,
        description="the path of a trace, relative to the scenario",
        examples=["traces/azure_llm2023_conv.csv"],
    )
    scale: _Positive = Field(
        default=1.0,
        description="the factor on every rate of the trace, a number above 0",
        examples=[120.0],
    )
    generator: str | None = Field(
        default=None,
        description="the kind of generated arrivals, as text",
        examples=["alibaba", "azure"],
    )
    mean_rps: _Positive | None = Field(
        default=None,
        description="the mean of the generated arrivals in requests per second of the run, above 0",
        examples=[800.0],
    )
    offset_s: _Offset | None = Field(
        default=None,
        description="the second of the trace at which the run begins, an integer from 0 to "
        f"{MAX_OFFSET_S}; what is before it is history",
        examples=[600],
    )


class WindowEntry(Entry):
    """What one window does to a tenant's model."""

    accuracy_pre: _Accuracy = Field(
        description="the accuracy on this window's data before retraining, a number from 0 to 1",
        examples=[0.61],
    )
    accuracy_post: _Accuracy = Field(
        description="the accuracy on this window's data after retraining, a number from 0 to 1",
        examples=[0.85],
    )
    seconds: Annotated[dict[str, _Positive], Field(min_length=1)] | None = Field(
        default=None,
        description="the seconds that retraining takes by instance size in GPCs, "
        'such as {"1": 150, "2": 80}; null: there is nothing to retrain on yet',
        examples=[{"1": 150, "2": 80, "3": 56, "4": 45}],
    )
    accuracy_estimated: _Accuracy | None = Field(
        default=None,
        description="the accuracy that is expected of the retraining and planned with, a number "
        "from 0 to 1; default accuracy_post",
        examples=[0.83],
    )


class RetrainingEntry(Entry):
    """How a tenant's data drifts: a packaged data set, or window by window."""

    model_config = _EITHER_RETRAINING

    dataset: str | None = Field(
        default=None,
        description="the name of a packaged data set, as text",
        examples=["nc-cifar-10", "nc-core50", "nc-20-newsgroups"],
    )
    windows: Annotated[list[WindowEntry], Field(min_length=1)] | None = Field(
        default=None,
        description="a list of at least one {accuracy_pre, accuracy_post, seconds}",
    )


class TenantEntry(Entry):
    """One model that is served, and retrained where its data drifts."""

    model_config = _MODEL_OR_PROFILE

    name: str | None = Field(
        default=None,
        description="the tenant's name, as text that is not empty; the model's unless given",
        examples=["front-page"],
    )
    model: str | None = Field(
        default=None,
        description="the name of a packaged model, as text; or, together with profile, a class of "
        "your own as package.module:Class",
        examples=["resnet-50", "bert-base", "my_models.detector:Detector"],
    )
    profile: str | None = Field(
        default=None,
        description="the path of a profile file, relative to the scenario",
        examples=["profiles/resnet-50-a100.json"],
    )
    slo_ms: _Positive = Field(
        description="the milliseconds within which a request is to be answered, a number above 0",
        examples=[100],
    )
    batch: int = Field(
        default=1,
        ge=1,
        le=MAX_BATCH,
        description=f"the largest batch it is served in, an integer from 1 to {MAX_BATCH}",
        examples=[4],
    )
    min_gpcs: int = Field(
        default=1,
        ge=1,
        description="the GPCs that one of its instances always has at least, a size of the board",
        examples=[1],
    )
    count: int = Field(
        default=1,
        ge=1,
        le=MOST_TENANTS,
        description="of a cluster: how many tenants like this one there are, numbered NAME-001, "
        f"NAME-002 with arrivals of their own, an integer from 1 to {MOST_TENANTS}",
        examples=[100],
    )
    memory_gib: float = Field(
        default=0.0,
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="of a cluster: the memory in GiB that an instance needs to serve it, a number "
        "of at least 0",
        examples=[12],
    )
    arrivals: ArrivalsEntry = Field(
        description="{trace, scale, offset_s} or {generator, mean_rps, offset_s}"
    )
    retraining: RetrainingEntry | None = Field(
        default=None,
        description="{dataset} or {windows}, or null where nothing is retrained",
    )
    live: LiveTenantEntry | None = Field(
        default=None,
        description="{classes, pixels, weights, benchmark, seed, epochs, replay, held_out} for "
        "the live runtime, all optional",
    )


class ScenarioEntry(Entry):
    """Tenants with their arrivals and drift on one GPU, and how to run them."""

    version: Literal[1] = Field(description=f"the version of the format, {VERSION}")
    name: str | None = Field(
        default=None,
        description="what the run is called, as text; the file's name unless given",
        examples=["two-tenants"],
    )
    gpu: str = Field(
        default="H200-141GB",
        description='the name of a board, such as "H200-141GB"',
        examples=["H200-141GB", "A100-40GB"],
    )
    window_s: float = Field(
        default=200.0,
        ge=1,
        le=MAX_WINDOW_S,
        allow_inf_nan=False,
        description=f"the seconds of a window, a whole number from 1 to {MAX_WINDOW_S}",
        examples=[200],
    )
    slot_s: float = Field(
        default=1.0,
        ge=0.1,
        le=60,
        allow_inf_nan=False,
        description="the seconds of a slot from 0.1 to 60: 1, 2, 3, ... or 1/2, 1/3, 1/4, ...",
        examples=[1, 0.5],
    )
    windows: int | None = Field(
        default=None,
        ge=1,
        le=MOST_WINDOWS,
        description=f"the number of windows to run, an integer from 1 to {MOST_WINDOWS}; "
        "unless given, as many as any tenant's data drifts in and the traces have room for",
        examples=[4],
    )
    policy: str = Field(
        default="migrator",
        description="the name of a policy, as text",
        examples=["migrator", "ekya", "paris"],
    )
    forecaster: str = Field(
        default="last-mean",
        description="the name of a forecaster, as text",
        examples=["last-mean"],
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=HIGHEST_SEED,
        description="what generated arrivals and drawn answers follow, an integer of at least 0",
        examples=[0],
    )
    workers: Literal["prepared", "cold"] = Field(
        default="prepared",
        description='"prepared" (processes wait ready for a new instance) or "cold"',
    )
    tenants: list[TenantEntry] = Field(
        min_length=1, description="a list of at least one tenant object"
    )
    cluster: ClusterEntry | None = Field(
        default=None,
        description="{gpus, apart, together, spare, move_s} where the tenants are placed on "
        "several GPUs; gpu is then left out",
    )
    live: LiveEntry | None = Field(
        default=None,
        description="{host, port, tokens, token_variables, max_body_mib, queue_limit, "
        "connections} for the live runtime, all optional",
    )


PARTS: Parts = {
    (): ScenarioEntry,
    ("tenants",): TenantEntry,
    ("tenants", "arrivals"): ArrivalsEntry,
    ("tenants", "retraining"): RetrainingEntry,
    ("tenants", "retraining", "windows"): WindowEntry,
    ("tenants", "live"): LiveTenantEntry,
    ("live",): LiveEntry,
    ("cluster",): ClusterEntry,
    ("cluster", "gpus"): GpuEntry,
}
