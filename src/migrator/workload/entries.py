"""The scenario file, version 1: its keys, their ranges and defaults.

Descriptions have two uses: in the JSON schema, and after `give` in the error about a value.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from migrator.core.scenario import HIGHEST_SEED, MOST_WINDOWS
from migrator.io.strict import MAX_NUMBER, Entry, Parts

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


MOST_GPUS = 10_000
MOST_TENANTS = 20_000

_Names = Annotated[list[str], Field(min_length=1)]


class GpuEntry(Entry):
    """One or several GPUs of one board."""

    board: str = Field(
        default="H200-141GB",
        description='the name of a board, such as "H200-141GB"',
        examples=["H200-141GB", "A100-40GB"],
    )
    name: str | None = Field(
        default=None,
        description="what the GPU is called, as text; several are numbered: NAME-1, NAME-2; the "
        "board's name unless given",
        examples=["rack-a"],
    )
    count: int = Field(
        default=1,
        ge=1,
        le=MOST_GPUS,
        description=f"how many of them there are, an integer from 1 to {MOST_GPUS}",
        examples=[8],
    )
    node: str | None = Field(
        default=None,
        description="the machine they are in, as text; null: not said",
        examples=["node-1"],
    )


class ClusterEntry(Entry):
    """The GPUs that tenants are placed on, and the constraints of a placement."""

    gpus: Annotated[list[GpuEntry], Field(min_length=1)] = Field(
        description="a list of at least one {board, name, count, node}"
    )
    apart: list[_Names] = Field(
        default=[],
        description="lists of tenants of which no two share a GPU; the name of an entry with "
        "count stands for all of its tenants",
        examples=[[["front-page", "its-replica"]]],
    )
    together: list[_Names] = Field(
        default=[],
        description="lists of tenants that all share a GPU",
        examples=[[["detector", "reader"]]],
    )
    spare: float = Field(
        default=0.0,
        ge=0,
        le=0.9,
        allow_inf_nan=False,
        description="the part of every instance's capability that placing tenants does not count "
        "on, kept for bursts, a number from 0 to 0.9",
        examples=[0.1],
    )
    move_s: float = Field(
        default=20.0,
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="what moving a tenant costs, in seconds of its goodput, a number of at least 0",
        examples=[20],
    )


MAX_CLASSES = 100_000
MAX_PIXELS = 1024
MAX_BODY_MIB = 1024
MAX_QUEUE = 1_000_000
MAX_CONNECTIONS = 65_535
MAX_EPOCHS = 10_000
MAX_REPLAY = 1_000_000


class LiveTenantEntry(Entry):
    """Construction, serving and retraining of one tenant's model in a live run."""

    classes: int | None = Field(
        default=None,
        ge=2,
        le=MAX_CLASSES,
        description=f"the classes its model tells apart, an integer from 2 to {MAX_CLASSES}; "
        "those of the benchmark unless given",
        examples=[10],
    )
    pixels: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PIXELS,
        description=f"the side of the images its network sees, an integer up to {MAX_PIXELS}; "
        "the model's own unless given",
        examples=[16],
    )
    weights: str | None = Field(
        default=None,
        description="the path of a safetensors file to begin with, relative to the scenario",
        examples=["weights/resnet-50.safetensors"],
    )
    benchmark: str | None = Field(
        default=None,
        description="the name of a benchmark, as text: pre-training and `migrator load` take "
        "labelled samples from it; the retraining's data set unless given",
        examples=["nc-synthetic", "nc-cifar-10"],
    )
    seed: int | None = Field(
        default=None,
        ge=0,
        le=HIGHEST_SEED,
        description="what first weights and made-up samples follow, an integer of at least 0; "
        "the scenario's plus the tenant's position unless given",
        examples=[1],
    )
    epochs: int = Field(
        default=8,
        ge=1,
        le=MAX_EPOCHS,
        description=f"the epochs of a retraining, an integer from 1 to {MAX_EPOCHS}",
        examples=[4],
    )
    replay: int = Field(
        default=200,
        ge=0,
        le=MAX_REPLAY,
        description="the samples of every earlier class that are learned again, an integer from "
        f"0 to {MAX_REPLAY}",
        examples=[50],
    )
    held_out: float = Field(
        default=0.2,
        ge=0.01,
        le=0.9,
        allow_inf_nan=False,
        description="the part of the labelled requests that only judges retrainings, a number "
        "from 0.01 to 0.9",
        examples=[0.2],
    )


class LiveEntry(Entry):
    """Address, access and limits of the live runtime."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="the address to listen on, as text",
        examples=["127.0.0.1", "0.0.0.0"],
    )
    port: int = Field(
        default=8600,
        ge=0,
        le=65535,
        description="the port to listen on, an integer from 0 (any that is free) to 65535",
        examples=[8600],
    )
    tokens: str | None = Field(
        default=None,
        description="the path of a YAML or JSON file with a token per tenant and one for admin, "
        "relative to the scenario",
        examples=["tokens.yaml"],
    )
    token_variables: Annotated[dict[str, str], Field(min_length=1)] | None = Field(
        default=None,
        description="the environment variables that hold the tokens, by tenant and for admin, "
        'such as {"admin": "ADMIN_TOKEN"}',
        examples=[{"admin": "ADMIN_TOKEN", "photos": "PHOTOS_TOKEN"}],
    )
    max_body_mib: float = Field(
        default=16.0,
        gt=0,
        le=MAX_BODY_MIB,
        allow_inf_nan=False,
        description=f"the largest request in MiB, a number above 0 and up to {MAX_BODY_MIB}",
        examples=[16],
    )
    queue_limit: int = Field(
        default=512,
        ge=1,
        le=MAX_QUEUE,
        description="the requests of a tenant that may wait, an integer from 1 to "
        f"{MAX_QUEUE}; those beyond are refused at once",
        examples=[512],
    )
    connections: int = Field(
        default=1024,
        ge=1,
        le=MAX_CONNECTIONS,
        description="the connections that are served at a time, an integer from 1 to "
        f"{MAX_CONNECTIONS}",
        examples=[1024],
    )


class ArrivalsEntry(Entry):
    """Source of a tenant's requests: a trace file or the generator."""

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
    """Effect of one window on a tenant's model."""

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
    """Drift of a tenant's data: a packaged data set, or window by window."""

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
    """One model that is served, and retrained if its data drifts."""

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
    """Tenants with their arrivals and drift on one GPU, and the settings of a run."""

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


def scenario_schema() -> dict[str, Any]:
    """The schema of version 1.

    It does not express relations between keys, which only reading checks.
    """
    schema = ScenarioEntry.model_json_schema(mode="validation")
    _tidy(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "MIGRator scenario",
    }


def _tidy(part: object) -> None:
    """Remove the titles that pydantic derives from the keys."""
    if isinstance(part, list):
        for each in part:
            _tidy(each)
    if not isinstance(part, dict):
        return
    if isinstance(part.get("title"), str):
        del part["title"]
    for each in part.values():
        _tidy(each)
