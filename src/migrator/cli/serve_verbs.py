"""Verbs that serve requests: `serve` (one GPU, or a cluster on Ray) and `gateway`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import Ca, State, app, naming, require_extra, require_known, say
from migrator.core.errors import InputError

if TYPE_CHECKING:
    import asyncio

    from migrator.cluster.fleet.forwarding import Trust
    from migrator.cluster.fleet.map_source import MapSource
    from migrator.io.tls import ServerCertificate
    from migrator.live.options import DaemonOptions
    from migrator.serving.http.access import Tokens
    from migrator.serving.http.requests import ClientLimits
    from migrator.workload.live import LiveScenario

_log = logging.getLogger(__name__)


@app.command()
def serve(
    scenario: Annotated[
        Path | None,
        typer.Argument(help="Scenario file, version 1 (YAML); or --model and --data instead."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Serve this model without a scenario: hf:FOLDER_OR_ID, timm:NAME, MODULE:CLASS, "
            "or a name of `migrator models`.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="With --model: labelled samples, a subfolder per class, or a name of "
            "`migrator benchmarks`.",
        ),
    ] = None,
    board: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --model: the GPU's board; default: the one there, emulated A100-40GB.",
        ),
    ] = None,
    driver: Annotated[
        str,
        typer.Option(
            metavar="emulated|mps|mig", help="How the GPU is partitioned; emulated needs no GPU."
        ),
    ] = "emulated",
    gpu: Annotated[int, typer.Option(min=0, help="Index of the GPU, as in nvidia-smi.")] = 0,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Policy; default: the scenario's.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port; default: the scenario's. 0: any free port."),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port of the API over gRPC; default: the scenario's, or none."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve a cluster scenario on this Ray cluster; `auto`: the one running here.",
        ),
    ] = None,
    shared: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|URL",
            help="With --cluster: storage for weights and labels that survives the loss of a "
            "machine, anything that fsspec supports; default: a folder on this machine.",
        ),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="With --cluster: return once all tenants are served."),
    ] = False,
    windows: Annotated[
        int | None, typer.Option(min=1, help="Stop after N windows; default: run until stopped.")
    ] = None,
    from_first_request: Annotated[
        bool,
        typer.Option("--from-first-request", help="Start the first window at the first request."),
    ] = False,
    state: State = None,
    batches: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Append a row per batch of requests to this file."),
    ] = None,
    log_format: Annotated[
        str,
        typer.Option(metavar="text|json", help="Format of log lines."),
    ] = "text",
    log_level: Annotated[
        str,
        typer.Option(
            metavar="debug|info|warning|error",
            help="Lowest level that is logged; info logs every decision with its reason.",
        ),
    ] = "info",
) -> None:
    """Serve and retrain the models of a scenario, partitioning the GPU as planned.

    Example:  migrator serve examples/live.yaml   and, in another terminal,

    migrator load examples/live.yaml --url http://127.0.0.1:8600   and   migrator status

    One model without a scenario:  migrator serve --model hf:my-model --data my-pictures

    Ctrl-C drains and deletes the instances it created. The API is the Open Inference Protocol v2,
    described at /openapi.json.
    """
    from dataclasses import replace

    if cluster is not None:
        require_extra("cluster", "migrator serve --cluster")
    require_extra("serve", "migrator serve")
    from migrator.cluster.file import is_cluster
    from migrator.serving.logs import FORMAT_VARIABLE, FORMATS, LEVELS, configure

    require_one_source(scenario, model, data, board)
    if cluster is not None:
        from migrator.cli.cluster_verbs import serve_cluster

        if scenario is None:
            raise InputError("--model: only for one GPU; with --cluster name a cluster scenario")

        alone: dict[str, object] = {"--batches": batches, "--grpc-port": grpc_port}
        alone |= {"--gpu": gpu or None, "--port": port, "--policy": policy, "--windows": windows}
        alone |= {"--from-first-request": from_first_request or None}
        for option, given in alone.items():
            if given is not None:
                raise InputError(f"{option}: only for one GPU; leave it out with --cluster")
        serve_cluster(scenario, cluster, driver=driver, shared=shared, state=state, detach=detach)
        return
    for option, given in (("--shared", shared), ("--detach", detach or None)):
        if given is not None:
            raise InputError(f"{option}: only for a cluster; leave it out, or add --cluster")
    if scenario is not None and is_cluster(scenario):
        raise InputError(
            f"{scenario}: this is a scenario of many GPUs; pass --cluster ADDRESS, or use a "
            "scenario with gpu"
        )
    _require_choice("--log-format", log_format, FORMATS)
    _require_choice("--log-level", log_level, LEVELS)
    from migrator.io.event_loop import run_until_signal
    from migrator.io.folders import state_folder
    from migrator.live.daemon import Daemon
    from migrator.live.options import EMULATED, DaemonOptions, stored_tenants

    if scenario is None and board is None and driver != EMULATED:
        board = board_of_gpu(driver, gpu, state_folder(state))
    live = live_scenario(scenario, model or "", data or "", board)
    if scenario is not None:
        named = None if policy else live.scenario.policy
        require_known(scenario, policy=named, forecaster=live.scenario.forecaster)
    api, own = live.live, replace(live.scenario, policy=policy or live.scenario.policy)
    ports = (api.port if port is None else port, api.grpc_port if grpc_port is None else grpc_port)
    live = replace(live, scenario=own, live=replace(api, port=ports[0], grpc_port=ports[1]))
    if live.live.grpc_port is not None:
        require_extra("grpc", "the API over gRPC")
    live = (stored := stored_tenants(state_folder(state), live)).live
    with naming(scenario):
        tokens = _take_tokens(live)
    serving = DaemonOptions(
        *(live, state_folder(state), driver, gpu, tokens, windows, from_first_request),
        batches=batches,
        stored=stored,
    )
    configure(log_format, log_level)
    os.environ[FORMAT_VARIABLE] = log_format  # for the workers' own log
    report = say if log_format == "text" else _log.info
    _announce(serving, report, scenario)
    run_until_signal(Daemon(serving, report).run)


def _take_tokens(live: LiveScenario) -> Tokens:
    """The tokens in the environment, of which they are removed."""
    from migrator.serving.http.access import Tokens, digest
    from migrator.workload.live import ADMIN
    from migrator.workload.tokens import drop_token_variables, read_tokens

    names = [tenant.name for tenant in live.tenants]
    tokens = read_tokens(live.live, names, os.environ) or {}
    drop_token_variables(live.live, os.environ)
    digests = {name: digest(token) for name, token in tokens.items()}
    admin = digests.pop(ADMIN, None)
    return Tokens(digests, admin)


def _require_choice(option: str, chosen: str, choices: Collection[str]) -> None:
    if chosen not in choices:
        raise InputError(f"{option}: {chosen[:40]!r} is not known; use {' or '.join(choices)}")


def _announce(serving: DaemonOptions, report: Callable[[str], None], scenario: Path | None) -> None:
    """Say how the GPU is used, and what is probably not meant."""
    from migrator.workload.tokens import names_without_tenant

    sentence = f"driver {serving.driver} on GPU {serving.gpu}"
    if serving.emulated:
        sentence = (
            "driver emulated: no GPU is used, answers and retrainings take the time of the "
            "profiles; use your GPU with --driver mig or --driver mps"
        )
    report(sentence)
    stored = serving.stored
    for name, why in stored.unusable.items() if stored else ():
        _log.warning("%s was added and is not served: %s", name, why)
    for name in stored.removed if stored else ():
        _log.warning(
            "%s is not served, as an operator removed it; `migrator admin load %s` serves it again",
            *(name, name),
        )
    live = serving.live.live
    every = [*stored.names, *stored.unusable] if stored else ()
    with naming(scenario):
        warnings = (names_without_tenant(live, every), benchmark_warning(serving.live))
    for warning in filter(None, warnings):
        _log.warning("%s", warning)


def benchmark_warning(live: LiveScenario) -> str:
    """Says if the benchmarks of a scenario have new samples for fewer windows than it runs."""
    from migrator.learn.registry import benchmark
    from migrator.workload.drift_windows import missing_samples

    windows_with_samples = {
        tenant.name: benchmark(tenant.benchmark).windows
        for tenant in live.tenants
        if tenant.benchmark is not None
    }
    return missing_samples(live.scenario, windows_with_samples)


def require_one_source(
    scenario: Path | None, model: str | None, data: str | None, board: str | None
) -> None:
    """InputError unless there is either a scenario, or a model with its samples."""
    if scenario is None and (model is None or data is None):
        raise InputError(
            "SCENARIO: name a scenario file (`migrator example live` prints one), or a model and "
            "its samples with --model and --data"
        )
    for option, given in (("--model", model), ("--data", data), ("--board", board)):
        if scenario is not None and given is not None:
            raise InputError(f"{option}: the scenario says it; leave the option or the file out")


def board_of_gpu(driver: str, index: int, state: Path) -> str:
    """The name of a GPU's board."""
    from migrator.gpu.drivers.registry import open_driver

    with open_driver(driver, index, state=state) as opened:
        return opened.gpu().board.name


def live_scenario(scenario: Path | None, model: str, data: str, board: str | None) -> LiveScenario:
    """The scenario in a file, or one for a model and its samples."""
    from migrator.learn.registry import benchmark
    from migrator.workload.examples import tenant_name, trial_entry
    from migrator.workload.live import parse_live, read_live

    if scenario is not None:
        return read_live(scenario)
    if Path(data).is_dir():
        data = f"folder:{Path(data).absolute()}"
    elif ":" not in data and not data.startswith("nc-"):
        raise InputError(
            f"--data: there is no folder {data}; check the path, or name a benchmark such as "
            "nc-synthetic"
        )
    benchmark(data)
    entry = trial_entry(model, data, board or "A100-40GB")
    live = parse_live(entry, folder=Path(), name=tenant_name(model))
    say(
        f"{live.tenants[0].name}: its profile is assumed; `migrator profile` measures it, and "
        "`migrator example live --model ...` prints a scenario to begin with"
    )
    return live


@app.command()
def gateway(
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Ray cluster; `auto`: the one running here."),
    ] = None,
    map_from: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="FILE|URL",
            help="Without Ray: map.json in the shared folder, or the address of another gateway.",
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Scenario, if Ray serves several."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")
    ] = 8600,
    grpc_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of the API over gRPC; default: none."),
    ] = None,
    max_body_mib: Annotated[
        float, typer.Option(min=0.001, max=1024.0, help="Largest request in MiB.")
    ] = 16.0,
    connections: Annotated[
        int, typer.Option(min=1, max=65535, help="Most connections at a time.")
    ] = 1024,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Serve with this certificate and its chain, in PEM; needs a key."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's private key, in PEM.")
    ] = None,
    ca: Ca = None,
    server_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name in the certificates of the daemons; default: the address of each.",
        ),
    ] = None,
) -> None:
    """Forward requests to the GPU that serves their tenant; several gateways may run.

    Example:  migrator gateway --cluster auto --port 8600

    The API is that of `migrator serve`, for all tenants; /cluster shows all GPUs.
    """
    if cluster is not None:
        require_extra("cluster", "migrator gateway --cluster")
    require_extra("serve", "migrator gateway")
    if grpc_port is not None:
        require_extra("grpc", "the API over gRPC")
    from migrator.cli.daemon import read_token
    from migrator.cluster.fleet.forwarding import Trust
    from migrator.cluster.fleet.map_source import MapSource, from_file, from_gateway, from_head
    from migrator.cluster.fleet.ray_clusters import connect, find_head
    from migrator.cluster.shared_files import read_bytes
    from migrator.io.event_loop import run_until_signal
    from migrator.io.tls import ServerCertificate, TlsFiles, trusting
    from migrator.serving.http.requests import ClientLimits

    if (cluster is None) == (map_from is None):
        raise InputError("--cluster, --map: set exactly one of them")
    if (tls_certificate is None) != (tls_key is None):
        raise InputError("--tls-certificate, --tls-key: set both of them, or none")
    certificate = None
    if tls_certificate is not None and tls_key is not None:
        names = ("--tls-certificate", "--tls-key")
        certificate = ServerCertificate(TlsFiles(tls_certificate, tls_key, names))
    context = trusting(ca)
    limits = ClientLimits(body_bytes=round(max_body_mib * 2**20), connections=connections)
    with ExitStack() as stack:
        if cluster is not None:
            ray = stack.enter_context(connect(cluster))
            source = from_head(ray, lambda: find_head(ray, scenario))
        elif (map_from or "").startswith(("http://", "https://")):
            source = from_gateway(map_from or "", read_token(None), context)
        else:
            source = from_file(map_from or "", read_bytes)
        ports = (port, grpc_port)
        trust = Trust(context, server_name)
        where = (host, ports, limits, certificate)
        run_until_signal(partial(_serve_gateway, MapSource(source), trust, *where))


async def _serve_gateway(
    source: MapSource,
    trust: Trust,
    host: str,
    ports: tuple[int, int | None],
    limits: ClientLimits,
    certificate: ServerCertificate | None,
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set; `ports`: of HTTP and, if any, of gRPC."""
    import asyncio

    from migrator.cluster.fleet.gateway import Gateway, follow_map
    from migrator.serving.http.access import Tokens
    from migrator.serving.http.server import ApiServer, affordable, new_grpc_server
    from migrator.serving.tracing import open_tracing

    tracing = open_tracing("migrator-gateway")
    following = await follow_map(source)
    if not source.current.order > (0, 0):
        following.cancel()
        why = f" ({source.trouble})" if source.trouble else ""
        raise InputError(
            f"--cluster, --map: there is no map yet{why}; start the cluster, then a gateway"
        )
    protocols = 1 if ports[1] is None else 2
    # the client's connection and the daemon's
    limits = affordable(limits, files_each=2 * protocols)
    app = Gateway(source, limits, tracing, trust)
    tokens = Tokens(admin=source.current.admin)
    server = ApiServer(
        app, tokens=tokens, host=host, port=ports[0], limits=limits, certificate=certificate
    )
    try:
        async with AsyncExitStack() as stack:
            if ports[1] is not None:
                # the tokens of tenants are known to their daemons only
                beside = new_grpc_server(app, host, ports[1], limits, Tokens(), certificate)
                await beside.start()
                stack.push_async_callback(beside.stop)
                say(f"gRPC at {beside.address}")
            await server.start()
            stack.push_async_callback(server.stop)
            say(f"serving at {server.url}")
            await stop.wait()
    finally:
        following.cancel()
        app.forwarder.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)
