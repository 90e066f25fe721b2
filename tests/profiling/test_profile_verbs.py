"""The verbs profile and profiles as a user types them, and the profiler without the CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FaultKind
from support.gpu_cli import answered, migrator, refused

from migrator.profiling import measurements as listed
from migrator.profiling import run as profiling_run
from migrator.profiling.__main__ import main
from migrator.workload.file import read_scenario

TINY = "support.tiny_model:Tiny"
ALONE = (listed.Study.LATENCY, listed.Study.START)


def write_scenario(path: Path, *tenants: dict[str, Any]) -> Path:
    """A scenario of tenants that differ from a plain one in these keys."""
    arrivals = {"generator": "poisson", "mean_rps": 10}
    plain = {"slo_ms": 50, "batch": 4, "arrivals": arrivals}
    data = {"version": 1, "gpu": "A30-24GB", "tenants": [{**plain, **keys} for keys in tenants]}
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    tenants = {"name": "own", "model": TINY}, {"model": "resnet-50"}
    return write_scenario(tmp_path / "two.yaml", *tenants)


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


def test_a_dry_run_lists_everything_without_a_gpu(scenario: Path) -> None:
    done = migrator("profile", scenario, "--dry-run", "--batches", "1,2", "--interference")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert f"latency      inference of {TINY}, batch 2, on 28 SMs" in lines
    assert any(line.startswith("interference 4 times inference of resnet-50") for line in lines)
    answer = answered("profile", scenario, "--dry-run")
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
    tenant = {"name": "own", "model": TINY}
    path, out = write_scenario(tmp_path / "one.yaml", tenant), tmp_path / "found.json"
    command = ("profile", path, "--driver", "cpu", "--pace", "0.02", "--out", out)
    done = migrator(*command, "--batches", "1")
    assert done.code == 0, done.err
    assert "capability within the objective" in done.out
    assert migrator("profiles", out).out.startswith(TINY)
    # and the scenario can be read with it
    write_scenario(path, tenant | {"profile": "found.json"})
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
    tenant = {"name": "own", "model": "support.profiled_models:Sized", "batch": 1}
    write_scenario(path, tenant | {"live": {"pixels": 40, "input_pixels": 16}})
    command = ("profile", path, "--driver", "cpu", "--pace", "0.02", "--out", out)
    answer = answered(*command)
    assert (answer["measured"], answer["faults"]) == (len(ALONE), [])
    assert "images of 40 pixels, sent with 16 pixels" in answer["profiles"][0]["provenance"]
    # another size is another measurement
    write_scenario(path, tenant | {"live": {"pixels": 48, "input_pixels": 16}})
    assert "images of 48 pixels" in migrator(*command).err


def test_tenants_with_one_profile_have_images_of_one_size(tmp_path: Path) -> None:
    tenants = (
        {"model": "resnet-50", "name": f"side-{pixels}", "live": {"pixels": pixels}}
        for pixels in (64, 32)
    )
    said = refused("profile", write_scenario(tmp_path / "two.yaml", *tenants), "--dry-run")
    assert "tenants[1].live.pixels: side-64 has the same model with images of another size" in said


def test_without_a_gpu_the_packaged_profiles_are_offered(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no NVIDIA GPU is to be seen here" in refused("profile", scenario)
    assert "`migrator profiles` lists them" in refused("profile", scenario)
    assert "resnet-50" in migrator("profiles").out
    assert len(answered("profiles")) == 9


def test_bad_input_is_refused_in_one_sentence(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert "--out" in refused(*cpu, "--out", tmp_path / "nowhere" / "x.json")
    monkeypatch.setattr(profiling_run, "find_spec", lambda _name: None)
    assert "pip install 'migrator-gpu[learn]'" in refused(*cpu, "--out", tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


def test_two_files_are_compared(tmp_path: Path) -> None:
    first, second, alien = (tmp_path / f"{name}.json" for name in ("one", "two", "alien"))
    for path, model, value in ((first, "a", 2.0), (second, "a", 2.2), (alien, "b", 2.0)):
        text = {"version": 2, "profiles": [profile_entry(model, value)]}
        path.write_text(json.dumps(text), encoding="utf-8")
    done = migrator("profile", "--compare", first, second)
    assert done.code == 0, done.err
    assert "4.76% (median),  9.52% (most: a x1 on 14 SMs)" in done.out
    comparison = answered("profile", "--compare", first, second)
    assert {quantity["quantity"]: quantity["largest"] for quantity in comparison}["load_s"] == 0
    assert "no model on the same board" in refused("profile", "--compare", first, alien)


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
