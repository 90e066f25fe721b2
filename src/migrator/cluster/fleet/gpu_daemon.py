"""The daemon of one GPU of a cluster: `python -m migrator.cluster.fleet.gpu_daemon SETTINGS`.

It is the daemon of `migrator serve`, with tenants that are added and removed, and a store that
outlives the machine. If its agent does not renew the lease, the daemon drains and exits.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import msgspec

from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.core.errors import MigratorError
from migrator.live.daemon import Daemon
from migrator.live.serving import EMULATED, Serving
from migrator.live.shared_store import SharedStore
from migrator.serve.http.authentication import Tokens, digest
from migrator.serve.logs import configure
from migrator.workload.live import ADMIN
from migrator.workload.tokens import drop_token_variables

LEASE_S = 20.0
"""Seconds without renewal after which the lease expires; a restarted agent takes over sooner."""
_LOOK_S = 0.5


class GpuDaemonSettings(msgspec.Struct, frozen=True):
    """Settings that the agent passes to its daemon."""

    run: ClusterRun
    gpu: str
    number: int
    """Index of the GPU in its machine."""
    port: int
    tenants: tuple[str, ...]
    lease: str
    """The agent touches this file to keep the daemon alive; it contains the key for orders."""


def serving_of(settings: GpuDaemonSettings) -> Serving:
    """The configuration of the daemon; InputError if it is invalid."""
    run, gpu = settings.run, settings.gpu
    live = run.live_on(gpu, settings.tenants)
    # clients that use gRPC call a gateway: the daemons of one machine would share the port
    live = replace(live, live=replace(live.live, port=settings.port, grpc_port=None))
    return Serving(
        live,
        run.state_of(gpu),
        run.driver,
        0 if run.driver == EMULATED else settings.number,
        _tokens(run),
        reader=partial(run.read, gpu),
        shared=SharedStore(run.shared, gpu.replace("/", "_")),
        ahead=run.models,
        windows_since_s=run.began_s,
        order_key=_order_key(Path(settings.lease)),
    )


def _order_key(lease: Path) -> str:
    try:
        return lease.read_text(encoding="ascii")
    except OSError as error:
        raise MigratorError(
            f"{lease}: the lease cannot be read ({error.strerror}); its agent has started another "
            "daemon, or has ended"
        ) from error


def _tokens(run: ClusterRun) -> Tokens:
    """Tokens of all tenants, because any tenant may be placed on this GPU."""
    digests = {name: digest(token) for name, token in run.tokens().items()}
    drop_token_variables(run.live, os.environ)
    return Tokens({k: v for k, v in digests.items() if k != ADMIN}, digests.get(ADMIN))


async def _serve(settings: GpuDaemonSettings) -> None:
    stop, running = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        running.add_signal_handler(number, stop.set)
    leased = asyncio.create_task(_leased(Path(settings.lease), stop))
    serving = serving_of(settings)
    try:
        await Daemon(serving).run(stop)
    finally:
        leased.cancel()
        if serving.shared is not None:
            serving.shared.close()


async def _leased(lease: Path, stop: asyncio.Event) -> None:
    """Set `stop` when the lease expires, or is deleted because another daemon was started."""
    seen, since_s = 0, time.monotonic()
    while not stop.is_set():
        await asyncio.sleep(_LOOK_S)
        try:
            now = lease.stat().st_mtime_ns
        except OSError:
            break
        if now != seen:  # only changes count, because the machine's clock may jump
            seen, since_s = now, time.monotonic()
        elif time.monotonic() - since_s > LEASE_S:
            break
    stop.set()


def main() -> int:
    """Serve until a signal arrives or the lease expires."""
    configure("text", "info")
    settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=GpuDaemonSettings)
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            runner.run(_serve(settings))
    except MigratorError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


def _loop() -> asyncio.AbstractEventLoop:
    """A uvloop event loop if uvloop is installed."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
    return made


if __name__ == "__main__":
    sys.exit(main())
