"""The verb in front of many GPUs: gateway."""

from __future__ import annotations

from typing import Annotated

import typer

from migrator.cli.app import app
from migrator.cli.printing import require_extra
from migrator.core.errors import InputError


@app.command()
def gateway(
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The Ray cluster; `auto` for the one running here."),
    ] = None,
    map_from: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="FILE|URL",
            help="Without Ray: map.json of the shared folder, or another gateway's address.",
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which cluster, where Ray serves several."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8600,
    max_body_mib: Annotated[float, typer.Option(min=0.001, max=1024.0)] = 16.0,
    connections: Annotated[int, typer.Option(min=1, max=65535)] = 1024,
) -> None:
    """Send requests on to the GPU that serves their tenant; start as many as you like.

    Example:  migrator gateway --cluster auto --port 8600

    It speaks the API of `migrator serve` for all tenants; /cluster shows all GPUs.
    """
    import gc

    if cluster is not None:
        require_extra("cluster", "migrator gateway --cluster")
    require_extra("serve", "migrator gateway")
    from migrator.cli.gateway_loop import gateway_served
    from migrator.serve.limits import Limits

    if (cluster is None) == (map_from is None):
        raise InputError("--cluster, --map: give one of both")
    gc.enable()
    limits = Limits(body_bytes=round(max_body_mib * 2**20), connections=connections)
    gateway_served(cluster, map_from, scenario, host, port, limits)
