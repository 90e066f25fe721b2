"""Two agents without Ray: tenants come and go while others are served, and daemons come back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from support.agents import VARIABLES, cluster_run, feedback, infer
from support.certificates import authority
from support.gateways import Asking
from support.waiting import LIMIT_S, until, until_async

from migrator.cluster.fleet import agent as agents
from migrator.cluster.fleet import gpu_daemon
from migrator.cluster.fleet.agent import GpuAgent
from migrator.cluster.fleet.cluster_map import ClusterMap, next_map
from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.gpu_daemon import DaemonProcess, GpuDaemonSettings, call_daemon
from migrator.cluster.fleet.messages import Report
from migrator.core.errors import MigratorError
from migrator.io.processes import Process
from migrator.io.tls import trusting


class Pair:
    """Two GPUs of one cluster."""

    def __init__(self, run: ClusterRun) -> None:
        self.run = run
        self.first, self.second = (GpuAgent(run, g, 0, "here", "127.0.0.1") for g in ("g1", "g2"))

    def served(self, agent: GpuAgent, *tenants: str) -> Report:
        def look() -> Report | None:
            report = agent.report(1)
            ready = all(tenant.ready for tenant in report.tenants.values())
            return report if report.up and ready and set(report.tenants) == set(tenants) else None

        def words() -> tuple[Report, str]:
            log = self.run.state_of(agent.report(1).gpu) / "daemon.log"
            return agent.report(1), log.read_text(encoding="utf-8")[-3000:]

        report = until(look, words)
        assert isinstance(report, Report)
        return report


def agent_of(run: ClusterRun) -> closing[GpuAgent]:
    return closing(GpuAgent(run, "g1", 0, "here", "127.0.0.1"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pytest.importorskip("fsspec", reason="weights and labels are shared through fsspec")
    before = dict(os.environ)
    os.environ.update(VARIABLES)
    folder = tmp_path_factory.mktemp("agents")
    gpus = [{"name": "g1"}, {"name": "g2"}]
    pair = Pair(cluster_run(folder, ["a", "b", "c"], gpus, trained=True))
    try:
        pair.first.begin(1, ("a", "b"))
        pair.second.begin(1, ())
        pair.served(pair.first, "a", "b")
        pair.served(pair.second)
        yield pair
    finally:
        pair.first.close()
        pair.second.close()
        os.environ.clear()
        os.environ.update(before)


def test_a_tenant_moves_with_its_weights_and_labels_while_others_are_served(pair: Pair) -> None:
    for number in range(10):
        assert infer(pair.first.url, "a", f"r{number}").status_code == 200
        assert feedback(pair.first.url, "a", f"r{number}", number % 3).status_code == 200
    version = infer(pair.first.url, "a").json()["model_version"]
    with Asking(pair.first.url, ["b"]) as asking:
        came = pair.second.take(1, "a")
        assert came.done, came
        gone = pair.first.release(1, "a")
        assert gone.done, gone
        until(lambda: asking.answers["b", 200] > 5, lambda: asking.reasons)
    assert not asking.refused, asking.reasons
    assert infer(pair.first.url, "a").status_code == 404
    reply = infer(pair.second.url, "a")
    assert (reply.status_code, reply.json()["model_version"]) == (200, version)
    _, status = call_daemon(pair.second.url, "GET", "/admin/status", token=None)
    assert list(status["tenants"]) == ["a"]
    assert {f"r{number}" for number in range(10)} <= labels_of(pair.run, "g2")


def labels_of(run: ClusterRun, gpu: str) -> set[str]:
    """The requests whose labels the daemon of that GPU learns from."""
    (path,) = run.state_of(gpu).glob("live/*/labels.db")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return {request for (request,) in database.execute("SELECT request FROM sample")}


def test_orders_are_idempotent_and_those_of_an_older_head_are_refused(pair: Pair) -> None:
    again = pair.second.take(1, "a")
    assert again.done
    assert "was here already" in again.message
    assert pair.first.release(1, "a").message == "a was not here"
    assert pair.second.begin(1, ("c",)).done
    pair.served(pair.second, "a")
    pair.second.report(5)
    refused = pair.second.take(4, "c")
    assert (refused.done, refused.epoch) == (False, 5)
    assert not pair.second.begin(4, ()).done
    assert not pair.second.stop(4).done
    assert "c" not in pair.second.report(5).tenants
    assert pair.second.release(5, "a").done
    assert pair.second.report(5).tenants == {}
    assert pair.second.take(5, "c").done  # one comes to an empty GPU


def ordered(agent: GpuAgent, body: object, key: str | None) -> tuple[int, Mapping[str, Any]]:
    """What a daemon answers to an order that comes without its agent."""
    path = "/admin/tenants"
    return call_daemon(agent.url, "POST", path, token=None, body=body, wait_s=30, order_key=key)


def test_invalid_orders_are_refused_and_disturb_no_tenant(pair: Pair) -> None:
    entry = {**pair.run.entry("a"), "name": "z", "model": "support.means_model:Missing"}
    key = pair.second._daemon.order_key
    status, answer = ordered(pair.second, {"admit": entry}, key)
    assert status == 400, answer
    status, answer = ordered(pair.second, {"admit": {}, "remove": "c"}, key)
    assert (status, answer["error"]) == (400, "set exactly one of `admit` or `remove`")
    for wrong in (None, "", "0" * len(key)):
        status, answer = ordered(pair.second, {"remove": "c"}, wrong)
        assert status == 403, answer
        assert "only the cluster's head" in answer["error"]
    for path, sent in (("c/unload", None), ("z/load", key)):
        status, answer = call_daemon(
            pair.second.url,
            "POST",
            f"/v2/repository/models/{path}",
            token=None,
            order_key=sent,
        )
        assert (status, "only the cluster's head" in answer["error"]) == (403, True), answer
    assert stat.S_IMODE(pair.second._daemon.lease.stat().st_mode) == 0o600
    assert infer(pair.second.url, "c").status_code == 200


def test_an_agent_that_was_paused_does_not_blame_its_daemon(
    served: ClusterRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request failed after far more than the limit, the next one is answered at once."""
    asked_at: list[float] = []
    now_s = [0.0]

    def paused(*_: object, **__: object) -> tuple[int, dict[str, Any]]:
        asked_at.append(now_s[0])
        if len(asked_at) == 2:
            now_s[0] += 60.0  # as SIGSTOP, and then SIGCONT
            raise MigratorError("timed out")
        return 200, {"pid": None, "tenants": {}, "window": 0}

    monkeypatch.setattr(agents, "call_daemon", paused)
    monkeypatch.setattr(agents, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    with agent_of(served) as agent:
        until(lambda: len(asked_at) > 4, lambda: asked_at)
        assert daemon_of(agent).kills == 0
        assert agent.report(1).up


def test_a_daemon_that_answers_with_an_error_does_not_hang(
    served: ClusterRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at its limit of connections: it is neither left by its tenants nor killed."""
    answers: list[int] = []
    now_s = [0.0]

    def busy(*_: object, **__: object) -> tuple[int, dict[str, Any]]:
        now_s[0] += 10.0
        answers.append(503)
        return 503, {"error": "too many connections"}

    monkeypatch.setattr(agents, "call_daemon", busy)
    monkeypatch.setattr(agents, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    with agent_of(served) as agent:
        until(lambda: len(answers) > 5, lambda: answers)
        assert daemon_of(agent).kills == 0
        assert agent.report(1).silent_s == 0


def test_a_tenant_of_a_daemon_that_hangs_is_released_at_once_and_for_good(
    served: ClusterRun,
) -> None:
    with agent_of(served) as agent:
        until(lambda: agent.report(1).silent_s >= 0.1, lambda: agent.report(1))
        assert agent.release(1, "a").done
        assert agent.report(1).assigned == ("b",)
        assert not agent.release(0, "b").done  # an older head's order


def test_that_a_gpu_is_drained_is_remembered(tmp_path: Path) -> None:
    run = cluster_run(tmp_path, ["a"], [{"name": "g1"}])
    for drained in (True, False):
        agent = GpuAgent(run, "g1", 0, "here", "127.0.0.1")
        assert agent.drain(3, drained).done
        assert not agent.drain(2, not drained).done
        agent.close()
        after = GpuAgent(run, "g1", 0, "here", "127.0.0.1")
        after.close()
        assert (agent.report(3).drained, after.report(3).drained) == (drained, drained)


def test_a_daemon_that_hangs_is_restarted_and_serves_its_tenants_while_the_store_hangs_too(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Path(pair.run.shared)
    versions, owner = (store / "versions/c" / name for name in ("serving.json", "owner"))
    content = versions.read_bytes()
    versions.unlink()
    os.mkfifo(versions)  # reading it hangs, as a mount whose server is away
    before = owner.read_bytes()
    pid = json.loads((pair.run.state_of("g2") / "daemon.json").read_bytes())["pid"]
    try:
        with monkeypatch.context() as impatient:
            impatient.setattr(agents, "HUNG_S", 1.0)
            os.kill(pid, signal.SIGSTOP)
            until(lambda: pair.second.report(5).restarts == 1, lambda: pair.second.report(5))
        until(lambda: infer_status(pair.second.url) == 200, lambda: pair.second.report(5))
        until(lambda: "does not answer" in pair.second.report(5).problem, lambda: "not reported")
        assert owner.read_bytes() == before
    finally:
        with os.fdopen(os.open(versions, os.O_RDWR | os.O_NONBLOCK), "wb"):
            (store / "versions/c/restored").write_bytes(content)
            (store / "versions/c/restored").replace(versions)
    until(lambda: owner.read_bytes() != before, lambda: pair.second.report(5))
    until(lambda: not pair.second.report(5).problem, lambda: pair.second.report(5))


def infer_status(url: str) -> int:
    try:
        return infer(url, "c").status_code
    except httpx.TransportError:
        return 0


def test_a_daemon_that_cannot_serve_says_why_in_one_sentence(tmp_path: Path) -> None:
    run = cluster_run(tmp_path, ["a"], [{"name": "g1"}])
    process = DaemonProcess(run.state_of("g1"))
    process.start(GpuDaemonSettings(run, "no such GPU", 0, 0, (), str(process.lease)))
    until(lambda: not process.alive, process.last_log_line)
    assert "error: gpu: small has no no such GPU" in process.last_log_line()
    assert process.find() is None
    (lease,) = process.folder.glob("lease.*")
    process.start(GpuDaemonSettings(run, "no such GPU", 0, 0, (), str(process.lease)))
    assert not lease.exists()  # one begun by an agent that died before it could say so ends
    until(lambda: not process.alive, process.last_log_line)


def test_a_process_returns_to_the_nice_level_of_its_parent() -> None:
    """Ray gives its workers a higher one, which the daemon would inherit."""
    code = """
import os
from migrator.cluster.fleet.gpu_daemon import restore_priority
os.setpriority(os.PRIO_PROCESS, 0, 15)
restore_priority()
print(os.getpriority(os.PRIO_PROCESS, 0))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert int(run.stdout) == own or "start Ray with RAY_worker_niceness=0" in run.stderr


async def test_a_lease_counts_by_its_renewals_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, now_s, looks = tmp_path / "lease", [0.0], [0]
    lease.touch()

    def monotonic() -> float:
        looks[0] += 1
        return now_s[0]

    async def looked() -> None:
        before = looks[0]
        await until_async(lambda: looks[0] > before + 1)

    monkeypatch.setattr(gpu_daemon, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(gpu_daemon, "_LEASE_POLL_S", 0.001)
    stop = asyncio.Event()
    watching = asyncio.create_task(gpu_daemon._leased(lease, stop))
    for hours in range(5):
        os.utime(lease, (3600 * hours, 3600 * hours))
        await looked()
        now_s[0] += gpu_daemon.LEASE_S - 1
        await looked()
        assert not stop.is_set()
    now_s[0] += 2  # it is not renewed any more
    await asyncio.wait_for(stop.wait(), LIMIT_S)
    await watching


def test_a_daemon_that_cannot_be_started_is_retried_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: an agent that stopped looking would say for ever that all is well."""
    tried: list[int] = []

    def start(*_: object) -> None:
        tried.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DaemonProcess, "start", start)
    monkeypatch.setattr(agents, "_AGAIN_S", (0.0,))
    with agent_of(cluster_run(tmp_path, ["a"], [{"name": "g1"}])) as agent:
        with pytest.raises(OSError, match="No space left"):
            agent.begin(1, ())
        port = agent.url
        until(lambda: len(tried) >= 4, lambda: agent.report(1))
        until(lambda: "No space left" in agent.report(1).problem, lambda: agent.report(1))
        report = agent.report(1)
        assert not report.up
        assert report.failures >= 2
        assert agent.url != port  # another process may have its port by now


class Mute(DaemonProcess):
    """A daemon that lives and says nothing."""

    before: GpuDaemonSettings | None = None
    served_before = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lives, self.starts, self.kills, self.looks = False, 0, 0, 0

    def find(self) -> GpuDaemonSettings | None:
        self.lives, self.served = self.before is not None, self.served_before
        return self.before

    def start(self, settings: GpuDaemonSettings) -> None:
        del settings
        self.starts += 1
        self.lives, self.served = True, False

    @property
    def alive(self) -> bool:
        return self.lives

    def renew(self) -> None:
        self.looks += 1

    def kill(self) -> None:
        self.kills += 1
        self.lives = False


@pytest.fixture
def mute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterRun:
    monkeypatch.setattr(agents, "DaemonProcess", Mute)
    monkeypatch.setattr(agents, "POLL_S", 0.01)
    monkeypatch.setattr(agents, "_AGAIN_S", (0.0,))
    return cluster_run(tmp_path, ["a"], [{"name": "g1"}])


@pytest.fixture
def served(mute: ClusterRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterRun:
    """The same; the agent finds a daemon that has served."""
    before = GpuDaemonSettings(mute, "g1", 0, 1, ("a", "b"), str(tmp_path / "l"))
    monkeypatch.setattr(Mute, "before", before)
    monkeypatch.setattr(Mute, "served_before", True)
    return mute


def daemon_of(agent: GpuAgent) -> Mute:
    assert isinstance(agent._daemon, Mute)
    return agent._daemon


def test_a_daemon_that_hangs_before_its_first_answer_is_ended_and_counts_as_failed(
    mute: ClusterRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "STARTING_S", 0.05)
    with agent_of(mute) as agent:
        agent.begin(1, ())
        until(lambda: agent.report(1).failures >= 3, lambda: agent.report(1))
        assert daemon_of(agent).kills >= 3
        ended = "did not answer and was ended"
        until(lambda: ended in agent.report(1).problem, lambda: agent.report(1))


def test_one_that_was_found_and_had_served_is_not_waited_for_as_if_it_began(
    served: ClusterRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "HUNG_S", 0.05)
    with agent_of(served) as agent:
        until(lambda: daemon_of(agent).starts, lambda: agent.report(1))
        assert daemon_of(agent).kills == 1  # the next one begins, and has time


def test_the_first_report_on_a_found_daemon_keeps_its_tenants_in_the_map(
    served: ClusterRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has not asked the daemon yet, so it does not know what that serves."""
    monkeypatch.setattr(agents, "POLL_S", 60.0)
    with agent_of(served) as agent:
        report = agent.report(1)
        cluster_map = ClusterMap(1, 1, {"a": report.url}, {}, {"g1": report.url})
        assert next_map(cluster_map, 1, ["a"], {"a": "g1"}, {"g1": report}, {}) is None
        daemon_of(agent).kill()
        after = next_map(cluster_map, 1, ["a"], {"a": "g1"}, {"g1": agent.report(1)}, {})
        assert after is not None
        assert list(after.away) == ["a"]


def test_a_found_daemon_is_known_to_have_served_or_not(tmp_path: Path) -> None:
    run = cluster_run(tmp_path, ["a"], [{"name": "g1"}])
    process = DaemonProcess(run.state_of("g1"))
    process.keep(GpuDaemonSettings(run, "g1", 0, 0, (), str(process.lease)))
    process._process = Process.of(os.getpid())  # one that lives
    process._store_identity()
    for served in (False, True):
        other = DaemonProcess(run.state_of("g1"))
        assert other.find() is not None
        assert other.served is served
        process.answers()


def test_of_two_heads_that_ask_at_once_the_newer_is_remembered(tmp_path: Path) -> None:
    run = cluster_run(tmp_path, ["a"], [{"name": "g1"}])
    agent, other = (GpuAgent(run, "g1", 0, "here", "127.0.0.1") for _ in range(2))
    try:
        for newest in range(10, 200, 10):
            asking = [
                threading.Thread(target=agent.report, args=(newest - age,)) for age in range(8)
            ]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join()
            assert agent.report(0).epoch == newest
        assert other.report(0).epoch == newest  # of the same folder
        assert not other.begin(newest - 1, ()).done
    finally:
        agent.close()
        other.close()


def test_an_agent_has_the_administrations_token_and_trusts_its_daemon_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the certificate names."""
    pytest.importorskip("fsspec", reason="weights and labels are shared through fsspec")
    ca = authority(tmp_path / "ca")
    ca.issue(tmp_path / "at", "DNS:daemons.example")
    names = {"admin": "ADMIN_TOKEN", "a": "A_TOKEN"}
    for name, value in {**VARIABLES, "ADMIN_TOKEN": "admin-" * 9, "A_TOKEN": "a" * 40}.items():
        monkeypatch.setenv(name, value)
    tls = {"certificate": "at/tls.crt", "key": "at/tls.key"}
    live = {"port": 0, "token_variables": names, "tls": tls}
    run = cluster_run(tmp_path, ["a"], [{"name": "g1"}], live=live, trained=True)
    verified = trusting(ca.ca)
    verified.check_hostname = False
    tenant = {"authorization": f"Bearer {'a' * 40}"}
    with agent_of(run) as agent, httpx.Client(verify=verified) as client:
        agent.begin(1, ())
        report = until(lambda: r if (r := agent.report(1)).up else None, lambda: agent.report(1))
        assert report.url.startswith("https://")
        assert client.get(f"{agent.url}/admin/status").status_code == 401
        order = {"admit": run.entry("a")}
        reply = client.post(f"{agent.url}/admin/tenants", json=order, headers=tenant)
        assert reply.status_code == 403
        assert agent.report(1).tenants == {}
        assert agent.take(1, "a").done
        tokened = client.get(f"{agent.url}/v2/models/a/ready", headers=tenant)
        assert tokened.status_code == 200
    settings = (run.state_of("g1") / "settings.json").read_text(encoding="utf-8")
    assert "a" * 40 not in settings
