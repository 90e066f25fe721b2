"""`validate`, and files of other kinds given to every verb that reads one."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.gpu_cli import migrator, refused
from typer.testing import CliRunner

from migrator.cli import GROUPS, app
from migrator.io import file_kind
from migrator.io.file_kind import FileKind, recognise
from migrator.planning.problem_file import example_problem
from migrator.workload.examples import example_text

PLAN = {
    "goodput": 1.0,
    "upper_bound": 1.0,
    "solver": "exact",
    "solve_s": 0.1,
    "retrainings": [],
    "slots": [{"instances": []}],
}
KINDS: Mapping[str, FileKind] = {
    "window.json": file_kind.PROBLEM,
    "plan.json": file_kind.PLAN,
    "quickstart.yaml": file_kind.SCENARIO,
    "live.yaml": file_kind.SCENARIO,
    "cluster.yaml": file_kind.CLUSTER,
    "layout.yaml": file_kind.LAYOUT,
    "placement.json": file_kind.PLACEMENT,
    "my.profiles.json": file_kind.PROFILES,
    "run.json": file_kind.RUN,
    "trace.csv": file_kind.TRACE,
    "policy.py": file_kind.MODULE,
    "run.html": file_kind.PAGE,
    "plan.png": file_kind.PICTURE,
    "records.db": file_kind.RECORDS,
}
SCENARIOS = (file_kind.SCENARIO, file_kind.CLUSTER)
VERBS: Mapping[str, tuple[FileKind, ...]] = {
    "plan {}": (file_kind.PROBLEM,),
    "check {} plan.json": (file_kind.PROBLEM,),
    "check window.json {}": (file_kind.PLAN,),
    "simulate {}": SCENARIOS,
    "compare {}": SCENARIOS,
    "serve {}": SCENARIOS,
    "load {} --url http://127.0.0.1:9": SCENARIOS,
    "profile {} --driver cpu": SCENARIOS,
    "profiles {}": (file_kind.PROFILES,),
    "cluster plan {}": SCENARIOS,
    "cluster plan cluster.yaml --current {}": (file_kind.PLACEMENT,),
    "gpu apply {} --dry-run": (file_kind.LAYOUT,),
    "gpu assert {}": (file_kind.LAYOUT,),
    "forecast evaluate {}": (file_kind.TRACE,),
    "dashboard {}": (file_kind.RECORDS,),
}
"""Verb -> the kinds of files that it takes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    profile = Path(file_kind.__file__).parent.parent / "workload" / "assumed_profile.json"
    texts = {
        "window.json": json.dumps(example_problem()),
        "plan.json": json.dumps(PLAN),
        **{f"{name}.yaml": example_text(name) for name in ("quickstart", "live", "cluster")},
        "layout.yaml": example_text("layout"),
        "placement.json": json.dumps({"placement": {"a": "gpu"}}),
        "my.profiles.json": profile.read_text(encoding="utf-8"),
        "run.json": json.dumps({"goodput": 1.0, "windows": []}),
        "trace.csv": "0,5\n1,7\n",
        "policy.py": example_text("policy"),
        "run.html": "<!DOCTYPE html><title>run</title>",
    }
    for name, text in texts.items():
        (made / name).write_text(text, encoding="utf-8")
    (made / "plan.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (made / "records.db").write_bytes(b"SQLite format 3\0")
    return made


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_says_what_a_wrong_file_is(
    verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(folder)
    for name in ("layout.yaml", "window.json", "policy.py", "records.db"):
        kind = KINDS[name]
        if kind in VERBS[verb]:
            continue
        done = migrator(*verb.format(name).split(), MIGRATOR_STATE=str(tmp_path))
        assert done.code == 2, (name, done)
        assert kind.name in done.refusal or "are swapped" in done.refusal, (name, done.refusal)


def test_every_kind_is_recognised(folder: Path) -> None:
    for name, kind in KINDS.items():
        assert recognise(folder / name) is kind, name
    assert recognise(folder / "missing") is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "tenants: []\nversion: 1\nwindow_s: 9\n", "tenants"),
        ("a.json", '{"slots": 3, "tenants": []}', "version: the key is missing"),
        ("a.txt", "hello", "this is no file that MIGRator reads"),
        ("a.py", "def (:", "this is no valid Python"),
        ("layout.yaml", "version: 1\ninstances: [{gpcs: 9}]\n", "has no instance of 9 GPCs"),
    ],
)
def test_validate_says_what_is_wrong(name: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert said in refused("validate", path)


DRIFT_OF_ONE_WINDOW = """
version: 1
gpu: A100-40GB
window_s: 10
windows: {windows}
tenants:
  - {{name: photos, model: small-cnn, profile: assumed, slo_ms: 500, batch: 4,
     arrivals: {{generator: azure, mean_rps: 5}},
     live: {{benchmark: nc-synthetic}},
     retraining: {{windows: [{{accuracy_pre: 0.5, accuracy_post: 0.5, seconds: null}}]}}}}
  - {{name: scans, model: small-cnn, profile: assumed, slo_ms: 500, batch: 4,
     arrivals: {{generator: azure, mean_rps: 5}}, retraining: null, live: {{classes: 3}}}}
"""


def test_windows_without_drift_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "short.yaml"
    path.write_text(DRIFT_OF_ONE_WINDOW.format(windows=5), encoding="utf-8")
    simulated = CliRunner().invoke(app, ["simulate", str(path), "--policy", "static-4-3,ekya"])
    assert simulated.exit_code == 0, simulated.output
    drift = "windows: 5, but retraining gives the drift of fewer: photos 1; later windows"
    assert simulated.stderr.count(drift) == 1
    validated = CliRunner().invoke(app, ["validate", str(path)])
    assert validated.exit_code == 0, validated.output
    assert validated.stdout.count(drift) == 1
    samples = "windows: 5, but live.benchmark has new samples for fewer: photos 4; in later windows"
    assert validated.stdout.count(samples) == 1


QUICKSTART, LIVE = example_text("quickstart"), example_text("live")
EXAMPLES = Path(__file__).parents[2] / "examples"
SERVED = str(EXAMPLES / "live.yaml")
LIVE_CLUSTER = (
    (EXAMPLES / "live_cluster.yaml")
    .read_text(encoding="utf-8")
    .replace("live.profiles.json", "assumed")
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (QUICKSTART.partition("tenants:")[0], "my.yaml: tenants: the key is missing"),
        ("version: 1\n\tgpu: A100-40GB\n", "my.yaml: malformed YAML at line 2 column 1: a tab"),
        (
            QUICKSTART.replace("policy: migrator ", "policy: migratr "),
            "my.yaml: policy: there is no 'migratr'",
        ),
        (
            QUICKSTART.replace("forecaster: auto", "forecaster: last-men"),
            "my.yaml: forecaster: there is no 'last-men'",
        ),
        (LIVE.replace("profile: assumed", "profile: my.json", 1), "`migrator profile SCENARIO"),
        (
            LIVE.replace("live:\n", "live:\n  tokens: no.yaml\n", 1),
            "my.yaml: live.tokens: there is no file",
        ),
        (
            LIVE_CLUSTER.replace("\ntenants:", "\nlive: {tokens: no.yaml}\ntenants:", 1),
            "my.yaml: live.tokens: there is no file",
        ),
        (
            LIVE.replace("benchmark: nc-synthetic", "benchmark: nc-cifar"),
            "my.yaml: benchmark: there is no 'nc-cifar'",
        ),
        (LIVE.replace("live:\n", "live:\n  tokens: tokens.yaml\n", 1), "tokens.yaml: live.tokens"),
        (
            LIVE.replace("live:\n", "live:\n  token_variables: {admin: A}\n", 1),
            "my.yaml: live.token_variables: ",
        ),
    ],
)
def test_validate_names_the_file_the_key_and_the_remedy(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tokens.yaml").write_text("admin: short\n")
    Path("my.yaml").write_text(text, encoding="utf-8")
    assert said in refused("validate", "my.yaml")


@pytest.mark.parametrize("verb", ["simulate", "serve"])
def test_a_name_that_a_scenario_gives_is_refused_with_its_file(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    text = re.sub("(?m)^(policy|forecaster):.*\n", "", LIVE)
    for key in ("policy", "forecaster"):
        path.write_text(f"{text}{key}: nothing\n", encoding="utf-8")
        said = refused(verb, path, MIGRATOR_STATE=str(tmp_path))
        assert f"{path}: {key}: there is no 'nothing'" in said


def test_validate_names_no_verb_that_the_file_lacks_keys_for(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(QUICKSTART, encoding="utf-8")
    use = migrator("validate", path, "--json").json["use"]
    assert use.startswith(f"use `migrator simulate {path}`; to serve it as well")
    assert "migrator serve" not in use
    path.write_text(LIVE, encoding="utf-8")
    assert "migrator serve" in migrator("validate", path, "--json").json["use"]


def test_every_verb_is_in_a_group_of_the_help() -> None:
    text = migrator("--help").out
    places = [text.index(group) for group in GROUPS]
    assert places == sorted(places)
    assert "Commands" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "SCENARIO: name a scenario file"),
        (["live.yaml", "--model", "small-cnn"], "--model: the scenario says it"),
        (["live.yaml", "--detach"], "--detach: only for a cluster"),
        (["live.yaml", "--shared", "s3://bucket"], "--shared: only for a cluster"),
        (["live.yaml", "--cluster", "auto", "--from-first-request"], "only for one GPU"),
        (["--model", "small-cnn", "--data", "no/folder"], "--data: there is no folder"),
        (["--model", "small-cnn", "--data", "nc-nothing"], "nc-nothing"),
        ([SERVED, "--log-format", "xml"], "--log-format: 'xml' is not known; use text or json"),
        ([SERVED, "--log-level", "loud"], "--log-level: 'loud' is not known; use debug or info"),
    ],
)
def test_what_serve_cannot_begin_with_is_refused(arguments: list[str], said: str) -> None:
    assert said in refused("serve", *arguments)


def test_an_address_is_checked_before_models_are_built(tmp_path: Path) -> None:
    model = ("--model", "small-cnn", "--data", "nc-synthetic", "--state", tmp_path / "state")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = migrator("serve", *model, "--port", taken.getsockname()[1])
    assert (done.code, "cannot listen on 127.0.0.1" in done.err) == (2, True)
    assert "building the models" not in done.err
    path = tmp_path / "open.yaml"
    path.write_text(example_text("live").replace("live:\n  port", "live:\n  host: 0.0.0.0\n  port"))
    done = migrator("serve", path, "--state", tmp_path / "state")
    assert (done.code, "tokens" in done.err) == (2, True)
    assert "building the models" not in done.err
    done = migrator("serve", *model[:-1], "/proc/nothing")
    assert (done.code, "/proc/nothing" in done.err) == (2, True)
    assert "building the models" not in done.err
