"""Triton's model configuration and statistics, for clients that ask for them before they begin."""

from __future__ import annotations

from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response

from migrator.serve.http.inference import model_of
from migrator.serve.http.middleware import json_response
from migrator.serve.http.protocol import INPUT, LABEL, SCORES
from migrator.serve.http.state import Backend, state_of


class TensorConfig(Struct, kw_only=True):
    """A tensor; `dims` are of one row."""

    name: str
    data_type: str
    dims: list[int]


class DynamicBatching(Struct, kw_only=True):
    """Requests that wait are answered together."""

    preferred_batch_size: list[int]
    max_queue_delay_microseconds: int = 0


class TransactionPolicy(Struct, kw_only=True):
    """One answer per request."""

    decoupled: bool = False


class ModelConfig(Struct, kw_only=True):
    """A model in the terms of Triton's configuration."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[TensorConfig]
    output: list[TensorConfig]
    dynamic_batching: DynamicBatching
    model_transaction_policy: TransactionPolicy = field(default_factory=TransactionPolicy)


class StatisticDuration(Struct, kw_only=True):
    """A number of events and their time in nanoseconds."""

    count: int = 0
    ns: int = 0


class InferStatistics(Struct, kw_only=True):
    """Requests, counted by rows: answered, refused or failed, and where their time went."""

    success: StatisticDuration
    fail: StatisticDuration
    queue: StatisticDuration
    compute_infer: StatisticDuration
    compute_input: StatisticDuration = field(default_factory=StatisticDuration)
    compute_output: StatisticDuration = field(default_factory=StatisticDuration)
    cache_hit: StatisticDuration = field(default_factory=StatisticDuration)
    cache_miss: StatisticDuration = field(default_factory=StatisticDuration)


class ModelStatistics(Struct, kw_only=True):
    """The requests of a model since the server began."""

    name: str
    version: str
    last_inference: int
    """Milliseconds since 1970; 0 before the first answer."""
    inference_count: int
    execution_count: int
    """Batches."""
    inference_stats: InferStatistics
    batch_stats: list[StatisticDuration] = []
    memory_usage: list[StatisticDuration] = []


class StatisticsAnswer(Struct, kw_only=True):
    """Statistics of one model or of all."""

    model_stats: list[ModelStatistics]


async def model_config(request: Request) -> Response:
    """The configuration of a model, as Triton describes it."""
    model = model_of(request)
    batch = state_of(request).backend.router.settings(model.name).batch
    return json_response(
        ModelConfig(
            name=model.name,
            platform="migrator",
            backend="migrator",
            max_batch_size=batch,
            input=[
                TensorConfig(name=INPUT, data_type=f"TYPE_{model.datatype}", dims=list(model.shape))
            ],
            output=[
                TensorConfig(name=SCORES, data_type="TYPE_FP32", dims=[model.classes]),
                TensorConfig(name=LABEL, data_type="TYPE_INT64", dims=[]),
            ],
            dynamic_batching=DynamicBatching(preferred_batch_size=[batch]),
        )
    )


async def model_statistics(request: Request) -> Response:
    """Counts and times of a model's requests, as Triton counts them."""
    backend = state_of(request).backend
    return json_response(
        StatisticsAnswer(model_stats=[_statistics(backend, model_of(request).name)])
    )


async def all_statistics(request: Request) -> Response:
    """The statistics of all models that the token permits."""
    state = state_of(request)
    names = filter(state.tokens.holder(request).may_use, state.backend.models)
    found = [_statistics(state.backend, each) for each in names]
    return json_response(StatisticsAnswer(model_stats=found))


def _statistics(backend: Backend, name: str) -> ModelStatistics:
    counts, version = backend.router.counts[name], backend.version(name)
    answered = counts.total.in_time + counts.total.late
    served_s, whole_s = counts.served_sum_s, counts.latency_sum_s
    return ModelStatistics(
        name=name,
        version="" if version is None else str(version),
        last_inference=round(counts.last_answer_s * 1e3),
        inference_count=answered,
        execution_count=counts.batches,
        inference_stats=InferStatistics(
            success=_duration(answered, whole_s),
            fail=_duration(counts.total.dropped + counts.total.failed, 0.0),
            queue=_duration(answered, max(0.0, whole_s - served_s)),
            compute_infer=_duration(answered, served_s),
        ),
    )


def _duration(count: int, seconds: float) -> StatisticDuration:
    return StatisticDuration(count=count, ns=round(seconds * 1e9))
