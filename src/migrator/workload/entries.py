"""The scenario file, version 1: its keys, their ranges and defaults.

Descriptions have two uses: in the JSON schema, and after `give` in the error about a value.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema

from migrator.core.scenario import HIGHEST_SEED, MOST_WINDOWS
from migrator.io.strict import MAX_NUMBER, Entry, require_version, validated

VERSION = 1

MAX_WINDOW_S = 10_000
MAX_OFFSET_S = 10_000_000
MOST_GPUS = 10_000
MOST_TENANTS = 20_000

_Accuracy = Annotated[float, Field(ge=0, le=1)]
_Positive = Annotated[float, Field(gt=0, le=MAX_NUMBER)]
_Names = Annotated[list[str], Field(min_length=1)]


def _key(description: str, default: Any = ..., **limits: Any) -> Any:
    """A key of the file; required if it has no default."""
    return Field(default, description=description, **limits)


def _integer(what: str, bounds: tuple[int, int], default: int | None, note: str = "") -> Any:
    least, most = bounds
    description = f"{what}, an integer from {least} to {most}{note}"
    return _key(description, default=default, ge=least, le=most)


def _number(what: str, bounds: tuple[float, float], default: float, words: str = "") -> Any:
    least, most = bounds
    words = f"{what}, {words or f'a number from {least:g} to {most:g}'}"
    return _key(words, default=default, ge=least, le=most)


class _Part(Entry):
    model_config = ConfigDict(allow_inf_nan=False)


class GpuEntry(_Part):
    """One or several GPUs of one board."""

    board: str = _key('the name of a board, such as "H200-141GB"', default="H200-141GB")
    name: str | None = _key(
        "what the GPU is called, as text; several are numbered: NAME-1, NAME-2; the "
        "board's name unless given",
        default=None,
    )
    count: int = _integer("how many of them there are", (1, MOST_GPUS), default=1)
    node: str | None = _key("the machine they are in, as text; null: not said", default=None)


class ClusterEntry(_Part):
    """The GPUs that tenants are placed on, and the constraints of a placement."""

    gpus: Annotated[list[GpuEntry], Field(min_length=1)] = _key(
        "a list of at least one {board, name, count, node}"
    )
    apart: list[_Names] = _key(
        "lists of tenants of which no two share a GPU; the name of an entry with "
        "count stands for all of its tenants",
        default=[],
    )
    spare: float = _number(
        "the part of every instance's capability that placing tenants does not count on, kept for "
        "bursts",
        (0, 0.9),
        default=0.0,
    )
    move_s: float = _number(
        "what moving a tenant costs, in seconds of its goodput",
        (0, 1e6),
        default=20.0,
        words="a number of at least 0",
    )


class LiveTenantEntry(_Part):
    """Construction, serving and retraining of one tenant's model in a live run."""

    classes: int | None = _integer(
        "the classes its model tells apart",
        (1, 100_000),
        default=None,
        note="; those of the benchmark unless given, and 1 for a model whose labels are tensors",
    )
    pixels: int | None = _integer(
        "the side of the images its network sees",
        (1, 1024),
        default=None,
        note="; the model's own unless given",
    )
    input_pixels: int | None = _integer(
        "the side of the images that clients send, which the network's own are made from",
        (2, 1024),
        default=None,
        note="; the network's unless given",
    )
    weights: str | None = _key(
        "the path of a safetensors file to begin with, relative to the scenario", default=None
    )
    benchmark: str | None = _key(
        "the name of a benchmark, as text, or folder:PATH for your own samples: pre-training and "
        "`migrator load` take labelled samples from it; the retraining's data set unless given",
        default=None,
    )
    seed: int | None = _integer(
        "what first weights and made-up samples follow",
        (0, HIGHEST_SEED),
        default=None,
        note="; the scenario's plus the tenant's position unless given",
    )
    epochs: int = _integer("the epochs of a retraining", (1, 10_000), default=8)
    replay: int = _integer(
        "the samples of every earlier class that are learned again", (0, 1_000_000), default=200
    )
    held_out: float = _number(
        "the part of the labelled requests that only judges retrainings", (0.01, 0.9), default=0.2
    )
    retrain_after_labels: int | None = _integer(
        "the new labels with which it is retrained at once, within the window",
        (20, 500_000),
        default=None,
        note="; null: it waits for the next window",
    )
    retrain_after_drop: Annotated[float, Field(ge=0.01, le=1)] | None = _key(
        "how far its accuracy falls until it is retrained at once, within the window, a number "
        "from 0.01 to 1, or null to wait for the next window",
        default=None,
    )


class TlsEntry(_Part):
    """The files of the certificate that the API shows to its clients."""

    certificate: str = _key(
        "the path of the certificate and its chain in PEM, relative to the scenario"
    )
    key: str = _key("the path of its private key in PEM, relative to the scenario")


class LiveEntry(_Part):
    """Address, access and limits of the live runtime."""

    host: str = _key("the address to listen on, as text", default="127.0.0.1", min_length=1)
    port: int = _integer("the port to listen on (0: any that is free)", (0, 65535), default=8600)
    grpc_port: Annotated[int, Field(ge=0, le=65535)] | None = _key(
        "the port of the API over gRPC (0: any that is free), or null for none", default=None
    )
    tokens: str | None = _key(
        "the path of a YAML or JSON file with a token per tenant and one for admin, relative to "
        "the scenario",
        default=None,
    )
    token_variables: Annotated[dict[str, str], Field(min_length=1)] | None = _key(
        "the environment variables that hold the tokens, by tenant and for admin, such as "
        '{"admin": "ADMIN_TOKEN"}',
        default=None,
    )
    tls: TlsEntry | None = _key(
        "the files {certificate, key}, read again when they change, or null to serve in clear",
        default=None,
    )
    max_body_mib: float = _key(
        "the largest request in MiB, a number above 0 and up to 1024", default=16.0, gt=0, le=1024
    )
    queue_limit: int = _integer(
        "the requests of a tenant that may wait",
        (1, 1_000_000),
        default=512,
        note="; those beyond are refused at once",
    )
    connections: int = _integer(
        "the connections that are served at a time", (1, 65_535), default=1024
    )


class ArrivalsEntry(_Part):
    """Source of a tenant's requests: a trace file or the generator."""

    trace: str | None = _key("the path of a trace, relative to the scenario", default=None)
    scale: _Positive = _key("the factor on every rate of the trace, a number above 0", default=1.0)
    spread_s: int | None = _integer(
        "the most seconds by which copies of the trace are late that are added up for scale",
        (0, MAX_WINDOW_S),
        default=None,
        note="; its rates are multiplied unless given",
    )
    generator: str | None = _key("the kind of generated arrivals, as text", default=None)
    mean_rps: _Positive | None = _key(
        "the mean of the generated arrivals in requests per second of the run, above 0",
        default=None,
    )
    offset_s: int | None = _integer(
        "the second of the trace at which the run begins",
        (0, MAX_OFFSET_S),
        default=None,
        note="; what is before it is history",
    )
    overload: bool = _key(
        "true or false: whether the mean rate may be more than the whole board can answer",
        default=False,
    )


class ConfigurationWindowEntry(_Part):
    """Effect of one window's retraining in another configuration than the first."""

    accuracy_post: _Accuracy = _key(
        "the accuracy on this window's data after retraining, a number from 0 to 1"
    )
    seconds: Annotated[dict[str, _Positive], Field(min_length=1)] | None = _key(
        'the seconds that retraining takes by instance size in GPCs, such as {"1": 150, "2": 80}; '
        "null: there is nothing to retrain on yet",
        default=None,
    )
    accuracy_estimated: _Accuracy | None = _key(
        "the accuracy that is expected of the retraining and planned with, a number from 0 to 1; "
        "default accuracy_post",
        default=None,
    )


class WindowEntry(ConfigurationWindowEntry):
    """Effect of one window on a tenant's model."""

    accuracy_pre: _Accuracy = _key(
        "the accuracy on this window's data before retraining, a number from 0 to 1"
    )


class ConfigurationEntry(_Part):
    """One way to retrain a tenant's model."""

    name: str = _key("the configuration's name, as text")
    memory_gib: float = _number(
        "the memory that its instance has at least, in GiB",
        (0, 1e6),
        default=0.0,
        words="a number of at least 0",
    )
    windows: Annotated[list[ConfigurationWindowEntry], Field(min_length=1)] | None = _key(
        "for simulations: a list of {accuracy_post, seconds}, one per window; not of the first "
        "configuration, which dataset or windows describes",
        default=None,
    )
    epochs: Annotated[int, Field(ge=1, le=10_000)] | None = _key(
        "in the live runtime: its epochs, an integer from 1 to 10000; those of the tenant's live "
        "keys unless given",
        default=None,
    )
    part: Annotated[float, Field(gt=0, le=1)] | None = _key(
        "in the live runtime: the part of the samples of every class that it trains on, a number "
        "above 0 and at most 1; 1 unless given",
        default=None,
    )
    layers: Literal["head", "last block", "all"] | None = _key(
        'in the live runtime: the layers that it trains, "head", "last block" (with the head) or '
        '"all"; "all" unless given',
        default=None,
    )

    @property
    def is_live(self) -> bool:
        """Whether it says how the live runtime carries it out."""
        return (self.epochs, self.part, self.layers) != (None, None, None)


class RetrainingEntry(_Part):
    """Drift of a tenant's data: a packaged data set, or window by window."""

    dataset: str | None = _key("the name of a packaged data set, as text", default=None)
    windows: Annotated[list[WindowEntry], Field(min_length=1)] | None = _key(
        "a list of at least one {accuracy_pre, accuracy_post, seconds}", default=None
    )
    configurations: Annotated[list[ConfigurationEntry], Field(min_length=1)] | None = _key(
        "the ways to retrain, of which a plan chooses one, as a list of {name, windows} or, for "
        "the live runtime, {name, epochs, part, layers}; the first is the one that dataset or "
        "windows describes",
        default=None,
    )


class TenantEntry(_Part):
    """One model that is served, and retrained if its data drifts."""

    name: str | None = _key(
        "the tenant's name, as text that is not empty; the model's unless given", default=None
    )
    model: str | None = _key(
        "the name of a packaged model, as text; or, together with profile, hf:FOLDER_OR_ID, "
        "timm:NAME or a class of your own as package.module:Class",
        default=None,
    )
    profile: str | None = _key(
        "the path of a profile file, relative to the scenario, or `assumed` for a trial",
        default=None,
    )
    slo_ms: _Positive = _key(
        "the milliseconds within which a request is to be answered, a number above 0"
    )
    batch: int = _integer("the largest batch it is served in", (1, 256), default=1)
    min_gpcs: int = _key(
        "the GPCs that one of its instances always has at least, a size of the board",
        default=1,
        ge=1,
    )
    weight: _Positive = _key(
        "what its goodput counts in a plan beside that of the others, a number above 0", default=1.0
    )
    floor: float = _number(
        "the share of the expected requests of every slot that a plan is able to answer in time, "
        "if any plan is",
        (0, 1),
        default=0.0,
    )
    count: int = _integer(
        "of a cluster: how many tenants like this one there are, numbered NAME-001, NAME-002 with "
        "arrivals of their own",
        (1, MOST_TENANTS),
        default=1,
    )
    memory_gib: float = _number(
        "of a cluster: the memory in GiB that an instance needs to serve it",
        (0, 1e6),
        default=0.0,
        words="a number of at least 0",
    )
    arrivals: ArrivalsEntry = _key(
        "{trace, scale, spread_s, offset_s} or {generator, mean_rps, offset_s}, and overload"
    )
    retraining: RetrainingEntry | None = _key(
        "{dataset} or {windows}, and configurations, or null where nothing is retrained",
        default=None,
    )
    live: LiveTenantEntry | None = _key(
        "{classes, pixels, input_pixels, weights, benchmark, seed, epochs, replay, held_out, "
        "retrain_after_labels, retrain_after_drop} for the live runtime, all optional",
        default=None,
    )


class PeersEntry(_Part):
    """What the GPU allows policies that share it with MPS, in a simulation."""

    min_sms: _Positive | None = _key(
        "the SMs that an MPS process has at least, a number above 0; those of the board's "
        "smallest instance unless given",
        default=None,
    )
    shares: Literal["runtime", "any"] = _key(
        '"runtime" (powers of two of the smallest share, and the whole GPU) or "any"',
        default="runtime",
    )
    resized_training: Literal["restarts", "free", "stays"] = _key(
        '"restarts" (a retraining that gets another share continues from its last checkpoint), '
        '"free" (it continues at once) or "stays" (it keeps its share)',
        default="restarts",
    )
    overlap: Literal["limited", "unlimited"] = _key(
        '"limited" (processes that hold more than the whole GPU together are slower) or '
        '"unlimited"',
        default="limited",
    )
    workers: Literal["prepared", "cold"] = _key(
        '"prepared" (as the workers of the scenario) or "cold" (for policies that do not look '
        "ahead)",
        default="prepared",
    )


class ScenarioEntry(_Part):
    """Tenants with their arrivals and drift on one GPU, and the settings of a run."""

    version: Literal[1] = _key(f"the version of the format, {VERSION}")
    name: str | None = _key(
        "what the run is called, as text; the file's name unless given", default=None
    )
    gpu: str = _key('the name of a board, such as "H200-141GB"', default="H200-141GB")
    window_s: float = _number(
        "the seconds of a window",
        (1, MAX_WINDOW_S),
        default=200.0,
        words=f"a whole number from 1 to {MAX_WINDOW_S}",
    )
    slot_s: float = _key(
        "the seconds of a slot from 0.1 to 60: 1, 2, 3, ... or 1/2, 1/3, 1/4, ...",
        default=1.0,
        ge=0.1,
        le=60,
    )
    windows: int | None = _integer(
        "the number of windows to run",
        (1, MOST_WINDOWS),
        default=None,
        note="; unless given, as many as any tenant's data drifts in and the traces have room for",
    )
    policy: str = _key("the name of a policy, as text", default="migrator")
    forecaster: str = _key(
        "the name of a forecaster, as text, or a function or class of your own as "
        "package.module:NAME",
        default="auto",
    )
    seed: int = _integer(
        "what generated arrivals and drawn answers follow", (0, HIGHEST_SEED), default=0
    )
    workers: Literal["prepared", "cold"] = _key(
        '"prepared" (processes wait ready for a new instance) or "cold"', default="prepared"
    )
    labels: Literal["start", "feedback"] = _key(
        '"start" (the labels of a window are there when it begins, and its retraining learns them) '
        'or "feedback" (they come during it, and the next window learns them); for simulations',
        default="start",
    )
    peers: PeersEntry | None = _key(
        "{min_sms, shares, resized_training, overlap, workers}, all optional: what policies that "
        "share the GPU with MPS are allowed in a simulation",
        default=None,
    )
    tenants: list[TenantEntry] = _key("a list of at least one tenant object", min_length=1)
    cluster: ClusterEntry | None = _key(
        "{gpus, apart, spare, move_s} where the tenants are placed on several GPUs; gpu "
        "is then left out",
        default=None,
    )
    live: LiveEntry | None = _key(
        "{host, port, tokens, token_variables, max_body_mib, queue_limit, connections} for the "
        "live runtime, all optional",
        default=None,
    )


def scenario_entry(data: object) -> ScenarioEntry:
    """The entries of a scenario in parsed YAML."""
    require_version(data, VERSION)
    return validated(ScenarioEntry, data, "the scenario", "YAML")


class _SchemaWithoutTitles(GenerateJsonSchema):
    """Without the titles that pydantic derives from the keys."""

    def field_title_should_be_set(self, schema: object) -> bool:
        del schema
        return False


def scenario_schema() -> dict[str, Any]:
    """The schema of version 1.

    It does not express relations between keys, which only reading checks.
    """
    schema = ScenarioEntry.model_json_schema(schema_generator=_SchemaWithoutTitles)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "MIGRator scenario",
    }
