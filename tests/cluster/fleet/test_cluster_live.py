"""A cluster of three nodes on this machine: placed, moved, killed piece by piece, always served."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from support.agents import cluster_run, feedback, infer
from support.gateways import Asking, gateway, gateway_process
from support.ray_nodes import RayNodes, ray_nodes
from support.waiting import LIMIT_S, until

from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.messages import Answer
from migrator.cluster.fleet.ray_agents import agent_name
from migrator.cluster.fleet.ray_clusters import NAMESPACE, actor_names, find_head
from migrator.cluster.shared_store import SharedStore
from migrator.io.processes import is_running

# found, not imported: every worker of a parallel run collects this file
pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="agents run on Ray: pip install 'migrator-gpu[cluster]'"
)

MIGRATOR = (sys.executable, "-m", "migrator")
TENANTS = ("photos", "mail", "maps")
GPUS = {"g0": "first", "g1": "n1", "g2": "n2"}


@dataclass
class World:
    """A cluster that serves, and a gateway before it."""

    run: ClusterRun
    nodes: RayNodes
    head: Any
    url: str
    folder: Path

    def asked(self, method: str, *arguments: object) -> Any:
        return self.nodes.ray.get(getattr(self.head, method).remote(*arguments), timeout=LIMIT_S)

    def map(self) -> ClusterMap:
        return msgspec.json.decode(self.asked("map"), type=ClusterMap)

    def home(self, tenant: str) -> str:
        return str(self.asked("overview")["tenants"][tenant]["gpu"])

    def states(self) -> set[str]:
        return {gpu["state"] for gpu in self.asked("overview")["gpus"]}

    def gpu(self, name: str) -> dict[str, Any]:
        """The entry of a GPU in the status."""
        return next(gpu for gpu in self.asked("overview")["gpus"] if gpu["gpu"] == name)

    def agent(self, gpu: str) -> Any:
        """The agent's actor."""
        return self.nodes.ray.get_actor(agent_name(self.run, gpu), namespace=NAMESPACE)

    def daemon(self, gpu: str) -> int:
        return int(json.loads((self.run.state_of(gpu) / "daemon.json").read_bytes())["pid"])

    def are_agents_there(self) -> bool:
        """Whether the agent of every GPU answers and sees its daemon."""
        epoch = self.map().epoch
        try:
            requests = [self.agent(gpu).report.remote(epoch) for gpu in GPUS]
            return all(report.up for report in self.nodes.ray.get(requests, timeout=LIMIT_S))
        except Exception:  # whatever Ray has for an actor that is being restarted
            return False

    def map_file(self) -> ClusterMap:
        content = (Path(self.run.shared) / "map.json").read_bytes()
        return msgspec.json.decode(content, type=ClusterMap)

    def led_after(self, before: ClusterMap) -> ClusterMap | None:
        """The map of a newer head, once it has one."""
        try:
            newest = self.map()
        except Exception:  # whatever Ray has for an actor that is not there
            return None
        return newest if newest.epoch > before.epoch and newest.homes else None

    def words(self) -> str:
        logs = [self.run.state_of(gpu) / "daemon.log" for gpu in GPUS]
        said = [log.read_text(encoding="utf-8")[-1500:] for log in logs if log.exists()]
        return "\n".join([json.dumps(self.asked("overview")), *said])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("cluster")
    gpus = [{"name": gpu, "node": node} for gpu, node in GPUS.items()]
    boards = [{"board": "A100-40GB", **gpu} for gpu in gpus]
    rules: dict[str, Any] = {"gpus": boards, "apart": [["photos", "mail"]]}
    with ray_nodes("n1", "n2") as nodes:
        # long windows of few slots: the head places tenants again at the edge of every window
        run = cluster_run(
            folder, TENANTS, gpus, window_s=120, slot_s=30, trained=True, cluster=rules
        )
        said = serve(folder / "small.yaml", "auto", run)
        assert f"serving {len(TENANTS)} tenants" in said
        world = World(run, nodes, find_head(nodes.ray, "small"), "", folder)
        try:
            until(lambda: world.states() == {"up"}, world.words)
            with gateway(folder / "gateway.log", "--cluster", nodes.address) as url:
                world.url = url
                yield world
        finally:
            with suppress(Exception):  # the last test has ended it
                nodes.ray.get(world.head.stop.remote(), timeout=LIMIT_S)
                nodes.ray.kill(world.head)


def get(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers=headers, timeout=LIMIT_S)


def migrator(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a verb that ends with that exit code."""
    done = subprocess.run(
        [*MIGRATOR, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == code, done.stderr
    return done


def serve(path: Path, address: str, run: ClusterRun) -> str:
    folders = ("--state", run.state, "--shared", run.shared)
    return migrator("serve", str(path), "--cluster", address, "--detach", *folders).stderr


def test_tenants_are_placed_as_the_rules_want_it_and_served_through_the_gateway(
    world: World,
) -> None:
    assert world.home("photos") != world.home("mail")
    for tenant in TENANTS:
        reply = infer(world.url, tenant, f"first of {tenant}")
        assert reply.status_code == 200, reply.text
        assert reply.json()["id"] == f"first of {tenant}"
    assert get(f"{world.url}/v2/health/ready").status_code == 200
    index = httpx.post(f"{world.url}/v2/repository/index", json={}, timeout=LIMIT_S).json()
    assert {model["name"] for model in index if model["state"] == "READY"} == set(TENANTS)
    assert infer(world.url, "unknown").status_code == 404
    done = migrator("status", "--cluster", world.nodes.address)
    for gpu in GPUS:
        assert f"{gpu:16} A100-40GB    up" in done.stdout
    for tenant in TENANTS:
        assert f"{tenant:16} {world.home(tenant)}" in done.stdout
    metrics = get(f"{world.url}/metrics").text
    labels = f'{{gpu="{world.home("maps")}",tenant="maps"}}'
    assert f"migrator_cluster_tenant_served{labels} 1.0" in metrics


def test_a_tenant_moves_under_load_without_a_failed_request_and_a_gateway_may_die(
    world: World,
) -> None:
    """Through gateways that hear of it from the head, and from the file that it writes."""
    source = world.home("maps")
    target = next(gpu for gpu in GPUS if gpu != source)
    options = ("--map", f"{world.run.shared}/map.json")
    with gateway_process(world.folder / "file.log", *options) as (url, process):
        with Asking(world.url, TENANTS) as asking, Asking(url, ["maps"]) as by_file:
            both = (asking, by_file)
            until(lambda: all(c.answers["maps", 200] > 5 for c in both), lambda: asking.reasons)
            assert world.asked("move", "maps", target) == f"maps moved from {source} to {target}"
            before = [client.answers["maps", 200] for client in both]
            until(
                lambda: all(
                    c.answers["maps", 200] > n + 5 for c, n in zip(both, before, strict=True)
                ),
                lambda: asking.reasons,
            )
        process.kill()
        process.wait()
        with pytest.raises(httpx.ConnectError):
            infer(url, "maps")
    assert infer(world.url, "maps").status_code == 200
    assert not asking.refused, asking.reasons
    assert not by_file.refused, by_file.reasons
    assert world.home("maps") == target
    tenants = get(f"{world.map().pages[source]}/admin/status").json()["tenants"]
    assert "maps" not in tenants


def test_labels_outlive_the_daemon_that_took_them(world: World) -> None:
    assert infer(world.url, "mail", "to be labelled").status_code == 200
    assert feedback(world.url, "mail", "to be labelled", 3).json()["stored"] is True
    rows = list(SharedStore(world.run.shared, "test").labels.fresh("mail").rows)
    assert ("to be labelled", 3) in [(row.request, row.label) for row in rows]


def test_an_agent_that_dies_leaves_its_daemon_serving(world: World) -> None:
    gpu = world.home("mail")
    daemon = world.daemon(gpu)
    with Asking(world.url, ["mail"]) as asking:
        world.nodes.ray.kill(world.agent(gpu), no_restart=False)
        until(lambda: asking.answers["mail", 200] > 20, lambda: asking.reasons)
        until(world.are_agents_there, world.words)
        until(lambda: world.gpu(gpu)["state"] == "up", world.words)
    assert not asking.refused, (asking.reasons, world.words())
    assert world.daemon(gpu) == daemon, world.words()
    assert world.home("mail") == gpu


def test_a_gpu_is_drained_under_load_without_a_failed_request_and_undrained(world: World) -> None:
    gpu = world.home("maps")
    with Asking(world.url, TENANTS) as asking:
        done = migrator("cluster", "drain", gpu, world.nodes.address, "--yes").stdout
        before = asking.answers["maps", 200]
        until(lambda: asking.answers["maps", 200] > before + 5, lambda: asking.reasons)
    assert f"{gpu} is drained" in done
    assert not asking.refused, asking.reasons
    assert get(f"{world.map().pages[gpu]}/admin/status").json()["tenants"] == {}
    assert world.states() == {"up", "drained"}
    undrained = migrator("cluster", "undrain", gpu, world.nodes.address).stdout
    assert "takes tenants again" in undrained
    until(lambda: world.states() == {"up"}, world.words)


def test_tenants_of_a_node_that_dies_come_back_elsewhere_with_their_weights(world: World) -> None:
    gpu = world.home("mail")
    if GPUS[gpu] == "first":  # Ray's own head is there
        world.asked(
            "move",
            "mail",
            next(other for other in GPUS if other not in (gpu, world.home("photos"))),
        )
        gpu = world.home("mail")
    lost = [tenant for tenant in TENANTS if world.home(tenant) == gpu]
    urls = world.map().homes
    version = infer(world.url, "mail", "asked there").json()["model_version"]
    with Asking(world.url, TENANTS) as asking:
        world.nodes.kill(GPUS[gpu], [world.gpu(gpu)["pid"], world.daemon(gpu)])
        until(lambda: all(world.map().homes.get(t, urls[t]) != urls[t] for t in lost), world.words)
        before = asking.answers["mail", 200]
        until(lambda: asking.answers["mail", 200] > before + 5, lambda: asking.reasons)
    others = [tenant for tenant in TENANTS if tenant not in lost]
    assert not sum(n for (tenant, s), n in asking.answers.items() if tenant in others and s != 200)
    assert {status for _, status in asking.answers} <= {200, 503}
    assert world.home("mail") not in (gpu, world.home("photos"))
    assert infer(world.url, "mail").json()["model_version"] == version
    again = feedback(world.url, "mail", "asked there", 3)
    assert again.status_code == 404  # whose inputs only the dead machine had
    assert world.gpu(gpu)["state"] == "gone"
    assert "neither its agent nor its daemon answers" in world.gpu(gpu)["words"]


def test_a_new_head_knows_what_the_old_one_knew_although_a_machine_is_gone(world: World) -> None:
    """And the old one is refused."""
    before = world.map()
    assert "gone" in world.states()
    os.kill(world.asked("pid"), signal.SIGKILL)
    after = until(lambda: world.led_after(before), lambda: "no head")
    assert after.homes == before.homes
    order = world.agent(world.home("mail")).take.remote(before.epoch, "photos")
    answer: Answer = world.nodes.ray.get(order, timeout=LIMIT_S)
    assert not answer.done
    assert answer.epoch == after.epoch
    assert "newer head" in answer.message


def test_ending_an_attached_serve_drains_every_gpu(world: World) -> None:
    pids = [world.daemon(gpu) for gpu in GPUS if gpu in world.map().pages]
    folders = ("--state", world.run.state, "--shared", world.run.shared)
    command = [*MIGRATOR, "serve", str(world.folder / "small.yaml")]
    log = world.folder / "serve.log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [*command, "--cluster", world.nodes.address, *folders], stderr=errors
        )
    try:
        until(lambda: "serving 3 tenants" in log.read_text(), log.read_text)
        process.send_signal(signal.SIGTERM)
        code = process.wait(LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert "draining every GPU" in log.read_text()
    assert (code == 0) == ("every GPU is drained" in log.read_text()), log.read_text()
    assert not [pid for pid in pids if is_running(pid)]
    assert actor_names(world.nodes.ray) == []
    assert get(f"{world.url}/v2/health/live").status_code == 200
    assert infer(world.url, "mail").status_code == 503


def test_a_cluster_started_again_is_found_by_gateways_and_ended_without_its_head(
    world: World,
) -> None:
    """Its windows continue, and its epoch is higher, so that gateways accept its map."""
    world.nodes.restore([node for node in GPUS.values() if node != "first"])
    epoch = world.map_file().epoch
    serve(world.folder / "small.yaml", world.nodes.address, world.run)
    world.head = find_head(world.nodes.ray, "small")
    assert world.map().epoch > epoch
    until(lambda: infer(world.url, "mail").status_code == 200, world.words)
    rows = list(SharedStore(world.run.shared, "test").labels.fresh("mail").rows)
    assert ("to be labelled", 3) in [(row.request, row.label) for row in rows]
    pids = [world.daemon(gpu) for gpu in GPUS]
    world.nodes.ray.kill(world.head)
    done = migrator("cluster", "stop", world.nodes.address, "--yes")
    assert "small is served no more" in done.stdout
    assert not [pid for pid in pids if is_running(pid)]
    assert actor_names(world.nodes.ray) == []
