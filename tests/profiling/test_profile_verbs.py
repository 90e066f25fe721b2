"""The verbs profile and profiles as a user types them, and the profiler without the CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FaultKind
from typer.testing import CliRunner, Result

from migrator.cli import app
from migrator.core.errors import InputError
from migrator.profiling import measurements as listed
from migrator.profiling import run as profiling_run
from migrator.profiling.__main__ import main
from migrator.workload.file import read_scenario

TINY = "support.tiny_model:Tiny"
ALONE = (listed.Study.LATENCY, listed.Study.START)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def refused(*arguments: str) -> str:
    done = run(*arguments)
    assert isinstance(done.exception, InputError), done.output
    assert "\n" not in str(done.exception)
    return str(done.exception)


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    arrivals = {"generator": "poisson", "mean_rps": 10}
    tenant = {"slo_ms": 50, "batch": 4, "arrivals": arrivals}
    data = {
        "version": 1,
        "gpu": "A30-24GB",
        "tenants": [
            {"name": "own", "model": TINY, **tenant},
            {"model": "resnet-50", **tenant},
        ],
    }
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return str(path)


def profile_entry(model: str, latency_ms: float) -> dict[str, Any]:
    return {
        "model": model,
        "board": "A30-24GB",
        "latency_ms": {"1": {"14": latency_ms, "56": 1.0}},
        "training_ratio": 3.0,
        "interference": 0.0,
        "contention": 1.0,
        "overhead": {"create_s": 1.0, "start_s": 1.0, "load_s": 1.0},
        "provenance": "by hand",
    }


def test_a_dry_run_lists_everything_without_a_gpu(scenario: str) -> None:
    done = run("profile", scenario, "--dry-run", "--batches", "1,2", "--interference")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert f"latency      inference of {TINY}, batch 2, on 28 SMs" in lines
    assert any(line.startswith("interference 4 times inference of resnet-50") for line in lines)
    answer = json.loads(run("profile", scenario, "--dry-run", "--json").stdout)
    assert answer["seconds"] > 0
    assert {measurement["study"] for measurement in answer["measurements"]} == {
        "latency",
        "training",
        "memory",
        "start",
    }


def test_a_model_without_a_profile_is_measured_and_its_capability_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = listed.measurements
    monkeypatch.setattr(listed, "measurements", lambda *models, **how: every(*models, **how)[:1])
    tenant = {
        **{"name": "own", "model": TINY, "slo_ms": 50, "batch": 4},
        "arrivals": {"generator": "poisson", "mean_rps": 10},
    }
    path, out = tmp_path / "one.yaml", tmp_path / "found.json"
    path.write_text(yaml.safe_dump({"version": 1, "gpu": "A30-24GB", "tenants": [tenant]}))
    command = ("profile", str(path), "--driver", "cpu", "--pace", "0.02", "--out", str(out))
    done = run(*command, "--batches", "1")
    assert done.exit_code == 0, done.output
    assert "capability within the objective" in done.stdout
    assert run("profiles", str(out)).stdout.startswith(TINY)
    # and the scenario can be read with it
    tenant["profile"] = "found.json"
    path.write_text(yaml.safe_dump({"version": 1, "gpu": "A30-24GB", "tenants": [tenant]}))
    assert read_scenario(path).tenants[0].service.profile.model == TINY


def test_a_model_is_measured_with_the_images_that_it_will_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = listed.measurements

    def one_of_each(*models: Any, **how: Any) -> list[listed.Measurement]:
        every_measurement = every(*models, **how)
        return [
            next(measurement for measurement in every_measurement if measurement.study is study)
            for study in ALONE
        ]

    monkeypatch.setattr(listed, "measurements", one_of_each)
    path, out = tmp_path / "one.yaml", tmp_path / "found.json"
    live = {"pixels": 40, "input_pixels": 16}
    tenant = {
        **{"name": "own", "model": "support.profiled_models:Sized", "slo_ms": 50, "live": live},
        "arrivals": {"generator": "poisson", "mean_rps": 10},
    }
    data = {"version": 1, "gpu": "A30-24GB", "tenants": [tenant]}
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    command = ("profile", str(path), "--driver", "cpu", "--pace", "0.02", "--out", str(out))
    done = run(*command, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["measured"], answer["faults"]) == (len(ALONE), [])
    assert "images of 40 pixels, sent with 16 pixels" in answer["profiles"][0]["provenance"]
    # another size is another measurement
    live["pixels"] = 48
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    assert "images of 48 pixels" in str(run(*command).exception)


def test_tenants_with_one_profile_have_images_of_one_size(scenario: str) -> None:
    path = Path(scenario)
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    for tenant, pixels in zip(data["tenants"], (64, 32), strict=True):
        tenant |= {"model": "resnet-50", "name": f"side-{pixels}", "live": {"pixels": pixels}}
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    said = refused("profile", scenario, "--dry-run")
    assert "tenants[1].live.pixels: side-64 has the same model with images of another size" in said


def test_without_a_gpu_the_packaged_profiles_are_offered(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no NVIDIA GPU is to be seen here" in refused("profile", scenario)
    assert "`migrator profiles` lists them" in refused("profile", scenario)
    assert "resnet-50" in run("profiles").stdout
    assert len(json.loads(run("profiles", "--json").stdout)) == 9


def test_bad_input_is_refused_in_one_sentence(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(tmp_path / "fake", ["A30-24GB"], mig=False):
        assert "or measure shares of the same sizes with --driver mps" in refused(
            "profile", scenario, "--driver", "mig"
        )
    assert "there is no 'mpss'; did you mean mps" in refused(
        "profile", scenario, "--driver", "mpss"
    )
    for wrong in ("", "0", "1,x", "1,,2", "5000"):
        assert "--batches" in refused("profile", scenario, "--batches", wrong)
    assert "SCENARIO: name" in refused("profile")
    cpu = ("profile", scenario, "--driver", "cpu")
    assert "--out" in refused(*cpu, "--out", str(tmp_path / "nowhere" / "x.json"))
    monkeypatch.setattr(profiling_run, "find_spec", lambda _name: None)
    assert "pip install 'migrator-gpu[learn]'" in refused(*cpu, "--out", str(tmp_path / "x.json"))
    assert not (tmp_path / "x.json").exists()


def test_two_files_are_compared(tmp_path: Path) -> None:
    first, second, alien = (tmp_path / f"{name}.json" for name in ("one", "two", "alien"))
    for path, model, value in ((first, "a", 2.0), (second, "a", 2.2), (alien, "b", 2.0)):
        text = {"version": 2, "profiles": [profile_entry(model, value)]}
        path.write_text(json.dumps(text), encoding="utf-8")
    done = run("profile", "--compare", str(first), str(second))
    assert done.exit_code == 0, done.output
    assert "4.76% (median),  9.52% (most: a x1 on 14 SMs)" in done.stdout
    comparison = json.loads(run("profile", "--compare", str(first), str(second), "--json").stdout)
    assert {quantity["quantity"]: quantity["largest"] for quantity in comparison}["load_s"] == 0
    assert "no model on the same board" in refused("profile", "--compare", str(first), str(alien))


def test_the_module_alone_does_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([TINY, "--board", "A30-24GB", "--dry-run"]) == 0
    assert "measurements, about" in capsys.readouterr().out
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([TINY]) == 2
    assert "no NVIDIA GPU" in capsys.readouterr().err
    with installed(tmp_path / "fake", ["A30-24GB"]) as fake:
        assert main([TINY, "--driver", "mig", "--interference", "--dry-run"]) == 2
        assert "use --driver mps" in capsys.readouterr().err
        assert main([TINY, "--driver", "mig", "--dry-run"]) == 0
        listed = capsys.readouterr().out
        assert listed.startswith(f"latency      inference of {TINY}, batch 1, on 56 SMs\n")
        fake.foreign(0, "4g.24gb")
        out = ("--out", str(tmp_path / "profiles.json"))
        assert main([TINY, "--driver", "mig", *out]) == 3
        assert "4g.24gb at 0 is there already" in capsys.readouterr().err
        fake.fault(FaultKind.NO_LIBRARY, None)
        assert main([TINY, "--driver", "mig", *out]) == 2
