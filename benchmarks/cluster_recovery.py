"""Seconds until tenants of a lost machine answer again: python -m benchmarks.cluster_recovery

Three nodes of a Ray cluster on this machine, an emulated A100 each, four tenants with small models
that really serve. While clients ask through a gateway a node is lost, comes back, and another is:

killed   its Ray, agent and daemon are killed: connections are refused
stopped  all its processes are stopped: nothing is refused and nothing answers, as at a power loss
hung     its daemon alone is stopped
removed  its Ray is ended gracefully: its daemon has no agent any more and serves on

[--cases killed stopped hung removed] [--times 5] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import msgspec
import yaml

from benchmarks.machine import describe_machine
from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.cluster.fleet.cluster_run import ClusterRun, read_run
from migrator.cluster.fleet.ray_clusters import NAMESPACE
from migrator.cluster.fleet.ray_head import start_head
from migrator.io.ray_cluster import import_ray

EXAMPLES = Path(__file__).parent.parent / "examples"
NODES = {"g1": "n1", "g2": "n2", "g3": "n3"}
TENANTS = ("photos", "cameras", "maps", "mail")
LIMIT_S = 180.0
NODE: dict[str, Any] = {
    "num_cpus": 1,
    "num_gpus": 0,
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
}
CASES = ("killed", "stopped", "hung", "removed")
SLOW_S = 1.0
"""An answer that takes longer counts as none."""
BODY = {
    "inputs": [
        {"name": "input", "datatype": "UINT8", "shape": [1, 3, 16, 16], "data": [0] * (3 * 16 * 16)}
    ]
}


def scenario(folder: Path) -> ClusterRun:
    """The tenants of examples/live.yaml twice, on three GPUs."""
    shutil.copy(EXAMPLES / "live.profiles.json", folder)
    tenant = {
        "model": "small-cnn",
        "profile": "live.profiles.json",
        "slo_ms": 500,
        "batch": 4,
        "arrivals": {"generator": "azure", "mean_rps": 20},
        "live": {"benchmark": "nc-synthetic", "pixels": 16, "epochs": 4, "replay": 25},
    }
    data = {
        "version": 1,
        "window_s": 60,
        "windows": 3,
        "policy": "migrator",
        "forecaster": "last-mean",
        "cluster": {
            "gpus": [{"board": "A100-40GB", "name": g, "node": n} for g, n in NODES.items()],
            "apart": [["photos", "cameras"], ["maps", "mail"]],
        },
        "tenants": [{"name": name, **tenant} for name in TENANTS],
    }
    path = folder / "recovery.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    shared = str(folder / "shared")
    return read_run(
        path, driver="emulated", shared=shared, state=folder / "state", began_s=time.time()
    )


@contextmanager
def gateway(run: ClusterRun, folder: Path) -> Iterator[str]:
    log = folder / "gateway.log"
    command = [sys.executable, "-m", "migrator", "gateway", "--port", "0"]
    with log.open("wb") as errors:
        process = subprocess.Popen([*command, "--map", f"{run.shared}/map.json"], stderr=errors)
    try:
        yield until(lambda: re.findall(r"serving at (\S+)", log.read_text()))[0]
    finally:
        process.terminate()
        process.wait()


def until(so: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        value = so()
        if value:
            return value
        time.sleep(0.05)
    raise SystemExit("it never came")


class Client:
    """Asks for one tenant all the time."""

    def __init__(self, url: str, tenant: str) -> None:
        self.tenant, self._url = tenant, f"{url}/v2/models/{tenant}/infer"
        self.answers: list[tuple[float, float, int]] = []
        """When it was asked and answered, and the status; 0: no answer in 20 s."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        with httpx.Client(timeout=20) as client:
            while not self._stop.wait(0.05):
                asked_s = time.monotonic()
                try:
                    status = client.post(self._url, json=BODY).status_code
                except httpx.HTTPError:
                    status = 0
                self.answers.append((asked_s, time.monotonic(), status))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def back_s(self, killed_s: float) -> float:
        """From the loss until answers came in time again; 0: they always did."""
        after = [answer for answer in self.answers if answer[1] > killed_s]
        bad = [
            n
            for n, (asked_s, answered_s, s) in enumerate(after)
            if s != 200 or answered_s - asked_s > SLOW_S
        ]
        if not bad:
            return 0.0
        _, told_s, status = after[bad[-1]]
        if status != 200:
            told_s = after[bad[-1] + 1][1]
        return told_s - killed_s


def family(pids: list[int]) -> list[int]:
    """These processes and all that they have started."""
    processes = list(pids)
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    for pid in processes:
        processes += [child for child, parent in parents.items() if parent == pid]
    return processes


def round_of(
    case: str,
    ray: Any,
    cluster: Any,
    nodes: dict[str, Any],
    run: ClusterRun,
    head: Any,
    url: str,
) -> dict[str, Any]:
    """Lose the node that serves most, wait until everybody answers, bring it back."""

    def overview() -> Any:
        return ray.get(head.overview.remote(), timeout=30)

    status = overview()
    gpu = max(status["gpus"], key=lambda statu: len(statu.get("tenants", ())))
    lost = gpu["tenants"]
    pid = json.loads((run.state_of(gpu["gpu"]) / "daemon.json").read_bytes())["pid"]
    clients = [Client(url, tenant) for tenant in TENANTS]
    time.sleep(3)
    killed_s, killed_at_s = time.monotonic(), time.time()
    name, node = NODES[gpu["gpu"]], nodes[NODES[gpu["gpu"]]]
    its_ray = [process[0].process.pid for process in node.all_processes.values()]
    of_case = {"killed": [gpu["pid"], pid], "stopped": family([*its_ray, pid]), "hung": [pid]}
    every = of_case.get(case, [])
    for outcome in every:
        os.kill(outcome, signal.SIGKILL if case == "killed" else signal.SIGSTOP)
    if case in ("killed", "removed"):
        cluster.remove_node(nodes.pop(name), allow_graceful=case == "removed")
    before = {outcome: status["tenants"][outcome]["url"] for outcome in lost}

    def moved() -> bool:
        homes = msgspec.json.decode(ray.get(head.map.remote(), timeout=30), type=ClusterMap).homes
        return all(homes.get(outcome, before[outcome]) != before[outcome] for outcome in lost)

    until(moved)
    time.sleep(3)
    for client in clients:
        client.stop()
    given_up = [event for event in overview()["events"] if "given up" in event["words"]]
    if case == "stopped":
        for outcome in every:
            os.kill(outcome, signal.SIGKILL)
        cluster.remove_node(nodes.pop(name), allow_graceful=False)
    elif case == "hung":
        with suppress(ProcessLookupError):  # its agent may have ended it
            os.kill(pid, signal.SIGCONT)
    figures = {
        "case": case,
        "tenants": lost,
        "noticed_s": round(given_up[-1]["at_s"] - killed_at_s, 2),
        "back_s": {
            client.tenant: round(client.back_s(killed_s), 2)
            for client in clients
            if client.tenant in lost
        },
        "refused": sum(
            s != 200 for client in clients if client.tenant in lost for *_, s in client.answers
        ),
        "others_refused": sum(
            s != 200 for client in clients if client.tenant not in lost for *_, s in client.answers
        ),
    }
    if name not in nodes:
        nodes[name] = cluster.add_node(**NODE, node_name=name)
    until(lambda: all(gpu["state"] == "up" for gpu in overview()["gpus"]))
    time.sleep(8)  # what to do the next time is thought out
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    load_average = os.getloadavg()[0]
    ray = import_ray()
    rounds = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr")))
        # Ray's default folder, for its clusters of tests; in /tmp, as paths of sockets are short
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="mr", dir="/tmp"))
        Path(temporary, "ray").mkdir()
        os.environ["RAY_TMPDIR"] = temporary
        cluster: Any = import_module("ray.cluster_utils").Cluster(
            initialize_head=True, head_node_args=NODE
        )
        stack.callback(cluster.shutdown)
        ray.init(
            address=cluster.address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False
        )
        stack.callback(ray.shutdown)
        nodes = {node: cluster.add_node(**NODE, node_name=node) for node in NODES.values()}
        run = scenario(folder)
        head = start_head(ray, run, {})
        stack.callback(lambda: ray.get(head.stop.remote(), timeout=90))
        until(lambda: len(msgspec.json.decode(ray.get(head.map.remote()))["homes"]) == len(TENANTS))
        url = stack.enter_context(gateway(run, folder))
        time.sleep(8)
        for case in options.cases * options.times:
            rounds.append(round_of(case, ray, cluster, nodes, run, head, url))
            print(rounds[-1], flush=True)
    for case in options.cases:
        worst = [max(entry["back_s"].values()) for entry in rounds if entry["case"] == case]
        print(f"{case}: all answer again after {min(worst):.1f} to {max(worst):.1f} s")
    if options.out:
        result = {"machine": describe_machine(), "load_average": round(load_average, 2)}
        options.out.write_text(json.dumps({**result, "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
