"""Tenants that are added to a serving daemon and removed from it, over HTTP, gRPC and the CLI."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import PYTHONPATH
from support.faults import forkserver_of, said, settled, teach
from support.live_daemon import Served, samples, scenario_file, section, served
from support.serving import children
from typer.testing import CliRunner

from migrator.cli import app
from migrator.core.errors import MigratorError

triton: Any = import_module("tritonclient.grpc")  # it has no types
PICTURES, _ = samples(0, 4)
ADMIN = "the-token-of-the-operators"


def _file(folder: Path, section: object) -> str:
    path = folder / "more.yaml"
    path.write_text(yaml.safe_dump(section), encoding="utf-8")
    return str(path)


def admin(daemon: Served, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["admin", *arguments, "--url", daemon.url, "--yes"])
    refused = isinstance(done.exception, MigratorError)
    return done.exit_code, str(done.exception) if refused else done.output


def control(daemon: Served, name: str, verb: str, config: Any = None) -> tuple[int, dict[str, Any]]:
    body = {} if config is None else {"parameters": {"config": json.dumps(config)}}
    url = f"{daemon.url}/v2/repository/models/{name}/{verb}"
    # as Triton's own client: JSON without a content type
    answer = daemon.client.post(url, content=json.dumps(body).encode())
    return answer.status_code, answer.json()


def index(daemon: Served) -> dict[str, tuple[str, str]]:
    entries = daemon.client.post(f"{daemon.url}/v2/repository/index").json()
    return {entry["name"]: (entry["state"], entry.get("reason", "")) for entry in entries}


@contextmanager
def asked(daemon: Served, tenant: str) -> Iterator[list[int]]:
    """Ask a tenant one request after the other meanwhile; the statuses of the answers."""
    statuses: list[int] = []
    done = threading.Event()

    def ask() -> None:
        while not done.wait(0.02):
            statuses.append(daemon.infer(tenant, PICTURES[0], "").status_code)
            ready = daemon.client.get(f"{daemon.url}/v2/health/ready").status_code
            if ready != 200:
                statuses.append(ready)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield statuses
    finally:
        done.set()
        thread.join()


def test_a_tenant_comes_and_goes_while_the_others_lose_no_request(tmp_path: Path) -> None:
    path = scenario_file(tmp_path, "photos", window_s=60)
    state, more = tmp_path / "state", section(tmp_path, "cameras")
    with served(path, state) as daemon:
        settled(daemon)
        with asked(daemon, "photos") as statuses:
            code, words = admin(daemon, "add", _file(tmp_path, more))
            assert (code, "cameras was added" in words) == (0, True), words
            assert daemon.infer("cameras", PICTURES[0], "first").status_code == 200
            teach(daemon, "cameras", 1, 5, "kept")
            code, words = admin(daemon, "remove", "cameras")
            assert (code, words.splitlines()[-1]) == (0, "cameras was removed")
            assert daemon.infer("cameras", PICTURES[0], "gone").status_code == 404
            assert index(daemon)["cameras"] == ("UNAVAILABLE", "unloaded")
            assert control(daemon, "cameras", "load")[0] == 200
            assert daemon.infer("cameras", PICTURES[0], "back").status_code == 200
            assert control(daemon, "cameras", "load")[1]["words"] == "cameras is served already"
            assert index(daemon)["cameras"] == ("READY", "")
        assert len(statuses) > 10
        assert set(statuses) == {200}
        code, words = admin(daemon, "remove", "photos")
        assert code == 0
        code, words = admin(daemon, "remove", "cameras")
        assert (code, "cameras is the last one" in words) == (1, True), words
        daemon.process.kill()
        daemon.process.wait()
    # what it served when it was killed
    with served(path, state) as again:
        assert set(again.status()["tenants"]) == {"cameras"}
        assert "photos is not served, as an operator removed it" in again.log.read_text("utf-8")
        assert again.infer("cameras", PICTURES[0], "after").status_code == 200
        assert admin(again, "load", "photos")[0] == 0
        assert again.stop() == 0, again.said()


def test_what_failed_or_was_removed_leaves_no_model_behind(tmp_path: Path) -> None:
    path, modules = scenario_file(tmp_path, "photos", window_s=60), tmp_path / "modules"
    profiles = json.loads((tmp_path / "profiles.json").read_text("utf-8"))
    profiles["profiles"].append({**profiles["profiles"][0], "model": "own_means:Means"})
    (tmp_path / "profiles.json").write_text(json.dumps(profiles), encoding="utf-8")
    modules.mkdir()
    own, exits = modules / "own_means.py", "import os\nos._exit(3)\n"
    own.write_text(exits, encoding="utf-8")
    profile = str(tmp_path / "profiles.json")
    cameras = section(tmp_path, "cameras", model="own_means:Means", profile=profile)
    variables = {"PYTHONPATH": f"{PYTHONPATH}:{modules}"}
    with served(path, tmp_path / "state", **variables) as daemon:
        settled(daemon)
        status, answer = control(daemon, "cameras", "load", cameras)
        assert (status, "cameras: the process that imports" in answer["error"]) == (400, True)
        own.write_text("from support.means_model import Means as Means\n", encoding="utf-8")
        # its pre-training fails
        one_class = cameras | {"live": {**cameras["live"], "classes": 1}}
        status, answer = control(daemon, "cameras", "load", one_class)
        assert "the model has 1 classes" in answer["error"]
        assert control(daemon, "cameras", "load", cameras)[0] == 200
        status, answer = control(daemon, "cameras", "load", one_class)
        assert status == 409
        assert control(daemon, "cameras", "unload")[0] == 200
        status, answer = control(daemon, "cameras", "load", one_class)
        assert (status, "it was served with another model" in answer["error"]) == (400, True)
        # a forkserver that cannot be restarted stops the plans of its own tenant only
        assert control(daemon, "cameras", "load")[0] == 200
        own.unlink()
        (added,) = (pid for pid in children(forkserver_of(daemon)) if children(pid))
        os.kill(added, signal.SIGKILL)
        said(tmp_path / "state", "the forkserver of cameras died", "workers go on serving")
        assert daemon.infer("cameras", PICTURES[0], "").status_code == 200
        assert control(daemon, "cameras", "unload")[0] == 200
        assert daemon.stop() == 0, daemon.said()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refusing")


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Served]:
    path = scenario_file(folder, "photos", "mail", window_s=60, policy="equal-mig")
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["live"] |= {"tokens": "tokens.json", "grpc_port": 0}
    for tenant in document["tenants"]:
        tenant["min_gpcs"] = 3
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    _write_tokens(folder, "photos", "mail")
    with served(path, folder / "state", token=ADMIN) as running:
        settled(running)
        yield running


def _write_tokens(folder: Path, *tenants: str) -> None:
    tokens = {name: f"the-token-of-{name}-itself" for name in tenants} | {"admin": ADMIN}
    (folder / "tokens.json").write_text(json.dumps(tokens), encoding="utf-8")


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_ADMIN_TOKEN", ADMIN)


def test_one_that_does_not_fit_is_refused_with_the_sizes_that_would_do(
    daemon: Served, folder: Path
) -> None:
    code, why = admin(daemon, "add", _file(folder, section(folder, "more", min_gpcs=2)))
    assert code == 1
    assert "more: it needs an instance of 2g, 3g, 4g or 7g" in why
    assert "beside the smallest ones of photos (3g) and mail (3g)" in why
    assert "remove photos or mail" in why
    assert set(daemon.status()["tenants"]) == {"photos", "mail"}


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"slow_ms": 3}, "slow_ms: "),
        ({"slo_ms": -1}, "slo_ms: "),
        ({"profile": "nothing.json"}, "there is no file"),
        ({"name": "a name"}, "cannot be part of an address"),
        ({"name": "admin"}, "use another name"),
        ({"name": "photos"}, "photos is served already; remove it first"),
    ],
)
def test_a_section_that_cannot_be_used_is_refused(
    daemon: Served, folder: Path, keys: dict[str, Any], why: str
) -> None:
    code, refusal = admin(daemon, "add", _file(folder, section(folder, "more") | keys))
    assert code in (1, 2)
    assert why in refusal
    assert "tenants[0]" not in refusal


def test_unknown_models_and_other_tokens_are_refused(daemon: Served) -> None:
    assert control(daemon, "nobody", "load")[0] == 404
    status, answer = control(daemon, "nobody", "unload")
    assert (status, "name photos or mail" in answer["error"]) == (404, True)
    assert control(daemon, "photos", "load", {"slo_ms": 100})[0] == 409
    url = f"{daemon.url}/v2/repository/models/photos/unload"
    for sent, status in (("the-token-of-photos-itself", 403), ("guess", 401)):
        refused = daemon.client.post(url, headers={"authorization": f"Bearer {sent}"})
        assert refused.status_code == status
    url = f"{daemon.url}/v2/repository/models/more/load"
    nested = json.dumps({"parameters": {"config": '{"a":' + 50_000 * "["}}).encode()
    for body in (
        *(b"[]", b'{"parameters": {"config": "no JSON"}}', b'{"parameters": {"config": 3}}'),
        nested,
    ):
        assert daemon.client.post(url, content=body).status_code == 400


def test_over_grpc_as_tritons_clients_do(daemon: Served, folder: Path) -> None:
    address = next(
        line.rpartition(" ")[2]
        for line in daemon.log.read_text("utf-8").splitlines()
        if line.startswith("gRPC at")
    )
    headers = {"authorization": f"Bearer {ADMIN}"}
    more = section(folder, "more", profile=str(folder / "profiles.json"))
    with triton.InferenceServerClient(address) as client:
        client.unload_model("mail", headers=headers)
        assert {
            model.name: model.state for model in client.get_model_repository_index(headers).models
        } == {
            "photos": "READY",
            "mail": "UNAVAILABLE",
        }
        with pytest.raises(triton.InferenceServerException, match="more without a token"):
            client.load_model("more", headers=headers, config=json.dumps(more))
        _write_tokens(folder, "photos", "mail", "more")
        client.load_model("more", headers=headers, config=json.dumps(more))
        own = {"authorization": "Bearer the-token-of-more-itself"}
        assert client.is_model_ready("more", headers=own)
        with pytest.raises(triton.InferenceServerException, match="it needs an instance"):
            client.load_model("mail", headers=headers)
        client.unload_model("more", headers=headers)
        _write_tokens(folder, "photos", "mail")  # one that is removed needs none
        client.load_model("mail", headers=headers)
        assert client.is_model_ready("mail", headers=headers)
