"""Handlers for health, metadata, administration, and Triton's configuration and statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from hmac import compare_digest
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

import migrator
from migrator.core.action import ActionKind, Outcome
from migrator.core.errors import HttpError, InputError, MigratorError, NotWrittenError
from migrator.core.tensors import TensorSpec
from migrator.serving.http.access import ORDER_KEY
from migrator.serving.http.bodies import read_body
from migrator.serving.http.inference import model_of
from migrator.serving.http.metrics import METRICS_TYPE, metrics_parts
from migrator.serving.http.operations import Backend, TenantChanges, json_response, state_of
from migrator.serving.http.protocol import (
    CLASS_NAME,
    INPUT,
    LABEL,
    SCORES,
    TEXTS,
    Identifier,
    IndexEntry,
    ModelMetadata,
    ModelParameters,
    Readiness,
    ServerMetadata,
    TensorMetadata,
    decode,
)
from migrator.serving.http.requests import header_of
from migrator.serving.router import DRAINED_RETRY_S
from migrator.serving.workers.messages import ModelInterface

_OF_HEAD = (
    "tenants: only the cluster's head moves them between GPUs; change them in the scenario of the "
    "cluster"
)
CLI_AGENT = "migrator-cli"
"""User agent of our own command line; used for the record only."""


class ActionRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """pause, resume, replan, or one of roll-back, drain, undrain, retrain with its tenant."""

    action: Identifier
    tenant: Identifier | None = None


class ActionAnswer(Struct, kw_only=True):
    """The action is done; `words` says what was done."""

    outcome: str
    words: str


class TenantRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of `admit`, a tenant as in a scenario, and `remove`, the name of a tenant.

    `folder`: paths of `admit` are relative to this folder of the daemon's machine.
    """

    admit: dict[str, Any] | None = None
    folder: str | None = None
    remove: Identifier | None = None


class ModelControl(Struct, kw_only=True):
    """As Triton has it. `parameters`: to load, `config` may be a tenant as in a scenario, as JSON
    in a text; others are ignored."""

    parameters: dict[str, Any] = {}


_CONTROL_DECODER = msgspec.json.Decoder(ModelControl)
_ACTION_DECODER = msgspec.json.Decoder(ActionRequest)
_TENANT_DECODER = msgspec.json.Decoder(TenantRequest)


async def server_metadata(request: Request) -> Response:
    """Name and version."""
    return json_response(
        ServerMetadata(
            name="migrator",
            version=migrator.__version__,
            extensions=[
                *("binary_tensor_data", "model_configuration", "model_repository", "statistics")
            ],
            window=state_of(request).backend.window(),
        )
    )


async def live(_: Request) -> Response:
    """The server runs."""
    return json_response(Readiness(ready=True))


async def ready(request: Request) -> Response:
    """Every model that is not drained has an instance ready, and there is at least one."""
    backend = state_of(request).backend
    router = backend.router
    served = [name for name in backend.models if not router.refuses(name)]
    if not served:
        raise HttpError(503, "no model is served; `migrator status` says which are drained")
    if not all(router.ready(name) for name in served):
        raise HttpError(503, "not every model has an instance ready; try again in some seconds")
    return json_response(Readiness(ready=True))


async def model_metadata(request: Request) -> Response:
    """Inputs and outputs of a model, and what its labels are."""
    model = model_of(request)
    version = state_of(request).backend.version(model.name)
    return json_response(
        ModelMetadata(
            name=model.name,
            versions=[] if version is None else [str(version)],
            platform="migrator",
            inputs=_input_metadata(model),
            outputs=_output_metadata(model),
            parameters=_parameters(model),
        )
    )


def _parameters(model: ModelInterface) -> ModelParameters:
    if model.labels:
        return ModelParameters(labels=_metadata(model.labels))
    return ModelParameters(class_names=model.class_names)


def _metadata(specs: Sequence[TensorSpec]) -> list[TensorMetadata]:
    return [
        TensorMetadata(name=spec.name, datatype=spec.datatype, shape=[-1, *spec.shape])
        for spec in specs
    ]


def _input_metadata(model: ModelInterface) -> list[TensorMetadata]:
    return _metadata(model.inputs or [TensorSpec(INPUT, model.datatype, model.shape)])


def _output_metadata(model: ModelInterface) -> list[TensorMetadata]:
    if model.outputs:
        return _metadata(model.outputs)
    return [
        TensorMetadata(name=SCORES, datatype="FP32", shape=[-1, model.classes]),
        TensorMetadata(name=LABEL, datatype="INT64", shape=[-1]),
        TensorMetadata(name=CLASS_NAME, datatype=TEXTS, shape=[-1]),
    ]


async def model_ready(request: Request) -> Response:
    """The model has an instance ready."""
    name, router = model_of(request).name, state_of(request).backend.router
    if router.refuses(name):
        reason = f"{name} is drained; try again later"
        raise HttpError(503, reason, retry_after_s=DRAINED_RETRY_S)
    if not router.ready(name):
        raise HttpError(503, f"{name} has no instance ready; try again in some seconds")
    return json_response(Readiness(ready=True, name=name))


async def model_index(request: Request) -> Response:
    """The models that the token permits."""
    state = state_of(request)
    router, holder = state.backend.router, state.tokens.holder(request)
    entries = []
    for name in filter(holder.may_use, state.backend.models):
        version, is_drained = state.backend.version(name), router.refuses(name)
        usable = router.ready(name) and not is_drained
        reason = "it is drained" if is_drained else "no instance is ready"
        entries.append(
            IndexEntry(
                name=name,
                version="" if version is None else str(version),
                state="READY" if usable else "UNAVAILABLE",
                reason="" if usable else reason,
            )
        )
    changes = state.backend.tenants
    for name in filter(holder.may_use, () if changes is None else changes.removed()):
        entries.append(IndexEntry(name=name, version="", state="UNAVAILABLE", reason="unloaded"))
    return json_response(entries)


async def metrics(request: Request) -> Response:
    """Metrics."""
    parts = []
    for part in metrics_parts(state_of(request).all_collectors):
        parts.append(part)
        await asyncio.sleep(0)  # other requests are answered in between
    return Response(b"".join(parts), headers={"content-type": METRICS_TYPE})


async def status(request: Request) -> Response:
    """The daemon's state."""
    return json_response(state_of(request).backend.status())


async def act(request: Request) -> Response:
    """Pause, resume or replan; roll back, drain, undrain or retrain one tenant."""
    backend = state_of(request).backend
    message = decode(_ACTION_DECODER, await _body(request))
    try:
        kind = ActionKind(message.action)
    except ValueError:
        raise HttpError(
            400, f"action: there is no {message.action}; use {', '.join(ActionKind)}"
        ) from None
    _require_tenant(backend, kind, message.tenant)
    if backend.act is None:
        raise HttpError(404, "action: this server takes none; send it to `migrator serve`")
    acted = await backend.act(kind, message.tenant, _origin(request))
    if acted.outcome is Outcome.REFUSED:
        raise HttpError(409, acted.words)
    if acted.outcome is Outcome.FAILED:
        raise HttpError(507 if acted.unwritten else 500, acted.words)
    return json_response(ActionAnswer(outcome=acted.outcome, words=acted.words))


async def _body(request: Request) -> bytes:
    state = state_of(request)
    with state.bodies.hold() as held:
        return await read_body(request, held, state.limits.body_bytes)


def _require_tenant(backend: Backend, kind: ActionKind, tenant: str | None) -> None:
    tenants = ", ".join(backend.models)
    if not kind.of_tenant:
        if tenant is not None:
            raise HttpError(400, f"tenant: {kind} concerns all tenants; leave it out")
    elif tenant is None:
        raise HttpError(400, f"tenant: {kind} concerns one tenant; name one of {tenants}")
    elif tenant not in backend.models:
        raise HttpError(404, f"tenant: there is no {tenant}; name one of {tenants}")


def _origin(request: Request) -> str:
    """For the record: browsers send the origin of their page, our command line its user agent."""
    if header_of(request, "origin") is not None:
        return "page"
    agent = header_of(request, "user-agent") or ""
    return "cli" if agent.startswith(CLI_AGENT) else "api"


async def load_model(request: Request) -> Response:
    """Serve a model again that was unloaded, or a new one with its section; returns once it is
    served."""
    changes = _require_changes(request, state_of(request).backend)
    message, name = await _control(request), request.path_params["name"]
    config = message.parameters.get("config")
    section = None
    if config is not None:
        try:
            section = msgspec.json.decode(config if isinstance(config, str) else b"", type=dict)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise HttpError(
                400, f"config: this is no JSON object in a text ({error}); give a tenant's section"
            ) from error
    if changes.load is None:
        raise HttpError(403, _OF_HEAD)
    return await _changed(changes.load(name, section))


async def unload_model(request: Request) -> Response:
    """Answer the waiting requests of a model and serve it no longer; its labels and versions are
    kept."""
    changes = _require_changes(request, state_of(request).backend)
    await _control(request)
    return await _changed(changes.remove(request.path_params["name"]))


async def _control(request: Request) -> ModelControl:
    body = await _body(request)
    return decode(_CONTROL_DECODER, body) if body.strip() else ModelControl()


async def change_tenants(request: Request) -> Response:
    """Add or remove a tenant. On a GPU of a cluster only its agent may."""
    tenants = _require_changes(request, state_of(request).backend)
    message = decode(_TENANT_DECODER, await _body(request))
    if (message.admit is None) == (message.remove is None):
        raise HttpError(400, "set exactly one of `admit` or `remove`")
    if message.remove is not None:
        return await _changed(tenants.remove(message.remove))
    return await _changed(tenants.admit(message.admit, message.folder))


async def _changed(change: Awaitable[str]) -> Response:
    """The answer to a change of tenants."""
    try:
        done = await change
    except HttpError:
        raise
    except MigratorError as error:
        status = 400 if isinstance(error, InputError) else 500
        status = 507 if isinstance(error, NotWrittenError) else status
        raise HttpError(status, str(error)) from error
    return json_response(ActionAnswer(outcome=Outcome.DONE, words=done))


def _require_changes(request: Request, backend: Backend) -> TenantChanges:
    """Changes of tenants. In a cluster only the agent of this GPU, which carries out the head's
    orders, knows the key."""
    tenants = backend.tenants
    if tenants is None:
        raise HttpError(403, "tenants: this server does not change them; send it to a daemon")
    if tenants.order_key is None:
        return tenants
    sent = (header_of(request, ORDER_KEY) or "").encode()
    if not tenants.order_key or not compare_digest(sent, tenants.order_key.encode()):
        raise HttpError(403, _OF_HEAD)
    return tenants


async def model_config(request: Request) -> Response:
    """The configuration of a model, as Triton describes it."""
    model = model_of(request)
    batch = state_of(request).backend.router.settings(model.name).batch
    parameters = msgspec.to_builtins(_parameters(model))
    return json_response(
        {
            "name": model.name,
            "platform": "migrator",
            "backend": "migrator",
            "max_batch_size": batch,
            "input": [_tensor_config(tensor) for tensor in _input_metadata(model)],
            "output": [_tensor_config(tensor) for tensor in _output_metadata(model)],
            "parameters": {
                key: {"string_value": msgspec.json.encode(value).decode()}
                for key, value in parameters.items()
            },
            "dynamic_batching": {
                "preferred_batch_size": [batch],
                "max_queue_delay_microseconds": 0,
            },
            "model_transaction_policy": {"decoupled": False},
        }
    )


def _tensor_config(tensor: TensorMetadata) -> dict[str, Any]:
    """A tensor; its `dims` are of one row."""
    kind = "STRING" if tensor.datatype == TEXTS else tensor.datatype
    return {"name": tensor.name, "data_type": f"TYPE_{kind}", "dims": tensor.shape[1:]}


async def model_statistics(request: Request) -> Response:
    """Counts and times of a model's requests, as Triton counts them."""
    statistics = _statistics(state_of(request).backend, model_of(request).name)
    return json_response({"model_stats": [statistics]})


async def all_statistics(request: Request) -> Response:
    """The statistics of all models that the token permits."""
    state = state_of(request)
    names = filter(state.tokens.holder(request).may_use, state.backend.models)
    return json_response({"model_stats": [_statistics(state.backend, name) for name in names]})


def _statistics(backend: Backend, name: str) -> dict[str, Any]:
    """The requests of a model since the server began, counted by rows."""
    counts, version = backend.router.counts[name], backend.version(name)
    answered = counts.total.in_time + counts.total.late
    served_s, whole_s = counts.served_sum_s, counts.latency_sum_s
    unused = ("compute_input", "compute_output", "cache_hit", "cache_miss")
    return {
        "name": name,
        "version": "" if version is None else str(version),
        "last_inference": round(counts.last_answer_s * 1e3),
        "inference_count": answered,
        "execution_count": counts.batches,
        "inference_stats": {
            "success": _duration(answered, whole_s),
            "fail": _duration(counts.total.dropped + counts.total.failed, 0.0),
            "queue": _duration(answered, max(0.0, whole_s - served_s)),
            "compute_infer": _duration(answered, served_s),
            **dict.fromkeys(unused, _duration(0, 0.0)),
        },
        "batch_stats": [],
        "memory_usage": [],
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    """A number of events and their time in nanoseconds."""
    return {"count": count, "ns": round(seconds * 1e9)}
