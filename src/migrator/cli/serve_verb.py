"""The verb that runs it live: serve."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from migrator.cli.app import app
from migrator.cli.printing import require_extra
from migrator.core.errors import InputError


@app.command()
def serve(
    scenario: Annotated[Path, typer.Argument(help="The scenario to serve (YAML).")],
    driver: Annotated[
        str,
        typer.Option(metavar="emulated|mps|mig", help="What divides the GPU; emulated needs none."),
    ] = "emulated",
    gpu: Annotated[int, typer.Option(min=0, help="Which GPU, as nvidia-smi numbers them.")] = 0,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another policy than the scenario's.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Another port than the scenario's; 0: a free one."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve a scenario of many GPUs on the Ray cluster there; `auto` for the one "
            "running here.",
        ),
    ] = None,
    shared: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|URL",
            help="With --cluster: where weights and labels outlive a machine, anything fsspec "
            "knows; default a folder of this machine.",
        ),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="With --cluster: return once all is served, leave it running."
        ),
    ] = False,
    windows: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many; default: go on until stopped.")
    ] = None,
    from_first_request: Annotated[
        bool,
        typer.Option(
            "--from-first-request", help="The first window begins with the first request."
        ),
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where models, labels, records and the journal live; default MIGRATOR_STATE or "
            "the user's.",
        ),
    ] = None,
    log_format: Annotated[
        str,
        typer.Option(metavar="text|json", help="Log lines for people, or as JSON for machines."),
    ] = "text",
    log_level: Annotated[
        str,
        typer.Option(
            metavar="debug|info|warning|error",
            help="The least that is logged; info has a line for every decision and why.",
        ),
    ] = "info",
) -> None:
    """Serve a scenario's models, retrain them beside the requests, and divide the GPU as planned.

    Example:  migrator serve examples/live.yaml   and, in another terminal,

    migrator load examples/live.yaml --url http://127.0.0.1:8600   and   migrator status

    Ctrl-C drains and frees what it made. The API speaks the Open Inference Protocol v2;
    /docs describes it.
    """
    import gc
    from dataclasses import replace

    if cluster is not None:
        require_extra("cluster", "migrator serve --cluster")
    require_extra("serve", "migrator serve")
    from migrator.cli.serve_loop import served
    from migrator.gpu.state import state_folder
    from migrator.live.daemon import Daemon
    from migrator.live.serving import Serving
    from migrator.serve.logs import FORMAT_VARIABLE, FORMATS, LEVELS, configure
    from migrator.serve.tokens import Tokens, digest
    from migrator.workload.cluster import is_cluster
    from migrator.workload.live import ADMIN, read_live
    from migrator.workload.tokens import drop_token_variables, read_tokens

    gc.enable()
    if cluster is not None:
        from migrator.cli.cluster_serve import serve_cluster

        alone = {"--gpu": gpu or None, "--port": port, "--policy": policy, "--windows": windows}
        for option, given in alone.items():
            if given is not None:
                raise InputError(f"{option}: this is for one GPU; leave it out with --cluster")
        serve_cluster(scenario, cluster, driver=driver, shared=shared, state=state, detach=detach)
        return
    if is_cluster(scenario):
        raise InputError(
            f"{scenario}: this is a scenario of many GPUs; give --cluster ADDRESS, or a scenario "
            "with gpu"
        )
    _require("--log-format", log_format, FORMATS)
    _require("--log-level", log_level, LEVELS)
    live = read_live(scenario)
    if policy is not None:
        live = replace(live, scenario=replace(live.scenario, policy=policy))
    if port is not None:
        live = replace(live, live=replace(live.live, port=port))
    found = read_tokens(live.live, [each.name for each in live.tenants], os.environ) or {}
    drop_token_variables(live.live, os.environ)
    digests = {name: digest(token) for name, token in found.items()}
    tokens = Tokens({k: v for k, v in digests.items() if k != ADMIN}, digests.get(ADMIN))
    serving = Serving(live, state_folder(state), driver, gpu, tokens, windows, from_first_request)
    configure(log_format, log_level)
    os.environ[FORMAT_VARIABLE] = log_format  # for the workers' own log
    served(Daemon(serving, _say) if log_format == "text" else Daemon(serving))


def _require(option: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InputError(f"{option}: {given[:40]!r} is not known; use {' or '.join(known)}")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
