"""The manifest parses, has what its documentation says, and calls verbs and options there are."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
MANIFEST = ROOT / "deploy" / "kubernetes" / "raycluster.yaml"
DOCS = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
EVERY: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))


def one(kind: str) -> dict[str, Any]:
    (manifest_of_kind,) = [manifest for manifest in EVERY if manifest["kind"] == kind]
    return manifest_of_kind


def worker() -> dict[str, Any]:
    (group,) = one("RayCluster")["spec"]["workerGroupSpecs"]
    spec: dict[str, Any] = group["template"]["spec"]
    return spec


def containers() -> list[dict[str, Any]]:
    head = one("RayCluster")["spec"]["headGroupSpec"]["template"]["spec"]
    others = [one(kind)["spec"]["template"]["spec"] for kind in ("Job", "Deployment")]
    return [container for spec in (head, worker(), *others) for container in spec["containers"]]


def called(kind: str) -> list[str]:
    """What its container runs, up to the first command's end."""
    (container,) = one(kind)["spec"]["template"]["spec"]["containers"]
    command = [*container["command"], *container["args"]]
    text = command[2] if command[:2] == ["/bin/sh", "-c"] else shlex.join(command)
    return shlex.split(text.partition(";")[0])


def test_everything_is_of_one_image_and_namespace() -> None:
    assert {manifest["metadata"]["namespace"] for manifest in EVERY} == {"migrator"}
    assert len({container["image"] for container in containers()}) == 1
    assert one("RayCluster")["apiVersion"] == "ray.io/v1"


def test_gpu_pods_may_divide_gpus_that_nobody_else_is_given() -> None:
    (container,) = worker()["containers"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    for name in ("VISIBLE", "MIG_CONFIG", "MIG_MONITOR"):
        assert variables[f"NVIDIA_{name}_DEVICES"] == "all"
        assert f"NVIDIA_{name}_DEVICES" in DOCS
    assert container["securityContext"]["privileged"]
    assert "nvidia.com/gpu" not in yaml.safe_dump(container["resources"])
    (key,) = worker()["nodeSelector"].items()
    assert f"kubectl label node NODE {key[0]}={key[1]}" in DOCS
    (toleration,) = worker()["tolerations"]
    assert f"kubectl taint node NODE {key[0]}={toleration['value']}:NoSchedule" in DOCS


def test_every_volume_that_is_mounted_is_there() -> None:
    specs = [worker(), one("RayCluster")["spec"]["headGroupSpec"]["template"]["spec"]]
    specs += [one(kind)["spec"]["template"]["spec"] for kind in ("Job", "Deployment")]
    for spec in specs:
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_commands_are_verbs_with_options_there_are(kind: str) -> None:
    command = called(kind)
    verb = command[command.index("migrator") + 1]
    done = subprocess.run(
        [sys.executable, "-m", "migrator", verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": "", "TERM": "dumb"},
    )
    options = set(re.findall(r"--[a-z-]+", done.stdout))
    own = command[command.index("migrator") :]
    assert {argument for argument in own if argument.startswith("--")} <= options


def test_the_job_is_part_of_the_ray_cluster_while_it_starts_the_scenario() -> None:
    """From elsewhere Ray can be reached by nobody who has no client's extras."""
    command = called("Job")
    assert command[:2] == ["ray", "start"]
    assert {"--num-cpus=0", "--num-gpus=0"} <= set(command)
    assert command[command.index("--cluster") + 1] == "auto"
    assert "--detach" in command


def test_gateways_are_reached_where_they_listen() -> None:
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert str(port["containerPort"]) in container["args"]
    assert one("Service")["spec"]["selector"] == {"app": "migrator-gateway"}
    (served,) = one("Service")["spec"]["ports"]
    assert served["targetPort"] == port["name"]
