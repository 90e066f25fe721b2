"""The manifests render, refer to what is there, and call verbs and options that there are.

The files are read as they are named in the kustomizations, which is all that these do beside names
and replicas. `kubectl` renders them as well where it is installed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.gpu_cli import migrator

from migrator.cluster.file import read_cluster

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "deploy" / "kubernetes"
DOCS = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
EXAMPLE = FOLDER / "example"
Object = dict[str, Any]


def loaded(path: Path) -> list[Object]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def kustomization(folder: Path) -> Object:
    (only,) = loaded(folder / "kustomization.yaml")
    return only


def rendered(folder: Path) -> list[Object]:
    """The objects of the files that a kustomization names, in its namespace."""
    made = kustomization(folder)
    objects: list[Object] = []
    for name in [*made.get("resources", ()), *made.get("components", ())]:
        path = folder / name
        objects += rendered(path) if path.is_dir() else loaded(path)
    for generated in made.get("configMapGenerator", ()):
        assert all((folder / file).is_file() for file in generated["files"])
        about = {"name": generated["name"]}
        data = {file: (folder / file).read_text(encoding="utf-8") for file in generated["files"]}
        objects.append({"kind": "ConfigMap", "metadata": about, "data": data})
    for each in objects:
        if "namespace" in made:
            each["metadata"]["namespace"] = made["namespace"]
    return objects


EVERY = rendered(EXAMPLE)


def of_kind(kind: str) -> list[Object]:
    return [manifest for manifest in EVERY if manifest["kind"] == kind]


def one(kind: str) -> Object:
    (manifest_of_kind,) = of_kind(kind)
    return manifest_of_kind


def pods() -> dict[str, tuple[dict[str, str], Object]]:
    """Labels and specification of every pod, by what makes it; KubeRay labels its own."""
    spec = one("RayCluster")["spec"]
    (group,) = spec["workerGroupSpecs"]
    cluster = {"ray.io/cluster": one("RayCluster")["metadata"]["name"]}
    templates = {
        "head": ({**cluster, "ray.io/group": "headgroup"}, spec["headGroupSpec"]["template"]),
        "worker": ({**cluster, "ray.io/group": group["groupName"]}, group["template"]),
        "job": ({}, one("Job")["spec"]["template"]),
        "gateway": ({}, one("Deployment")["spec"]["template"]),
    }
    return {
        name: (labels | template.get("metadata", {}).get("labels", {}), template["spec"])
        for name, (labels, template) in templates.items()
    }


def container_of(pod: str) -> Object:
    (container,) = pods()[pod][1]["containers"]
    made: Object = container
    return made


def variables(pod: str) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom"))
        for variable in container_of(pod)["env"]
    }


def selected(labels: Mapping[str, str]) -> list[str]:
    """The pods with these labels."""
    return [name for name, (own, _) in pods().items() if labels.items() <= own.items()]


def called(kind: str) -> list[str]:
    """What its container runs, up to the first command's end."""
    container = container_of({"Job": "job", "Deployment": "gateway"}[kind])
    command = [*container["command"], *container["args"]]
    text = command[2] if command[:2] == ["/bin/sh", "-c"] else shlex.join(command)
    return shlex.split(text.partition(";")[0])


def test_kustomizations_name_every_file_and_only_those_that_are_there() -> None:
    named: set[Path] = set()
    for path in FOLDER.rglob("kustomization.yaml"):
        made = kustomization(path.parent)
        files = [file for maps in made.get("configMapGenerator", ()) for file in maps["files"]]
        for name in [*made.get("resources", ()), *made.get("components", ()), *files]:
            entry = (path.parent / name).resolve()
            assert entry.exists(), f"{path} names {name}"
            named.add(entry / "kustomization.yaml" if entry.is_dir() else entry)
    every = {path for path in FOLDER.rglob("*") if path.is_file()}
    assert every - named == {EXAMPLE / "kustomization.yaml"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kubectl_renders_the_same_objects() -> None:
    command = ["kubectl", "kustomize", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    objects = list(yaml.safe_load_all(done.stdout))
    assert {made["kind"] for made in objects} == {made["kind"] for made in EVERY}
    assert "image: registry.example.com/migrator:0.1.0" in done.stdout


def test_everything_is_of_one_image_and_namespace() -> None:
    assert {manifest["metadata"]["namespace"] for manifest in EVERY} == {"migrator"}
    assert len({container_of(pod)["image"] for pod in pods()}) == 1
    assert one("RayCluster")["apiVersion"] == "ray.io/v1"


def test_gpu_pods_may_divide_gpus_that_nobody_else_is_given() -> None:
    spec, container = pods()["worker"][1], container_of("worker")
    for name in ("VISIBLE", "MIG_CONFIG", "MIG_MONITOR"):
        assert variables("worker")[f"NVIDIA_{name}_DEVICES"] == "all"
        assert f"NVIDIA_{name}_DEVICES" in DOCS
    assert container["securityContext"]["privileged"]
    assert "nvidia.com/gpu" not in yaml.safe_dump(container["resources"])
    (key,) = spec["nodeSelector"].items()
    assert f"kubectl label node NODE {key[0]}={key[1]}" in DOCS
    (toleration,) = spec["tolerations"]
    assert f"kubectl taint node NODE {key[0]}={toleration['value']}:NoSchedule" in DOCS


def test_volumes_that_are_mounted_are_there_and_so_is_what_they_are_of() -> None:
    claims = {claim["metadata"]["name"] for claim in of_kind("PersistentVolumeClaim")}
    maps = {generated["metadata"]["name"] for generated in of_kind("ConfigMap")}
    for _, spec in pods().values():
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
            if "configMap" in volume:
                assert volume["configMap"]["name"] in maps


def _secrets(tree: Any) -> Iterator[str]:
    """Names of the secrets that a manifest refers to."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key in ("secretRef", "secretKeyRef", "credentials"):
                yield value["name"]
            else:
                yield from _secrets(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _secrets(value)


def test_the_page_makes_every_secret() -> None:
    made = dict(re.findall(r"create secret generic (\S+) (.+)", DOCS))
    assert set(_secrets(EVERY)) == made.keys()
    assert "--from-literal=auth_token=" in made["migrator-ray"]


def test_every_pod_that_is_part_of_ray_has_its_token() -> None:
    for pod in ("head", "worker", "job"):
        assert variables(pod)["RAY_AUTH_MODE"] == "token"
        reference = {"secretKeyRef": {"name": "migrator-ray", "key": "auth_token"}}
        assert variables(pod)["RAY_AUTH_TOKEN"] == reference
    assert "migrator-ray" not in yaml.safe_dump(container_of("gateway"))


def test_selectors_match_pods_and_ports_are_named_there() -> None:
    ports = {
        pod: {port["name"]: port["containerPort"] for port in container_of(pod).get("ports", ())}
        for pod in pods()
    }
    services = {service["metadata"]["name"]: service["spec"] for service in of_kind("Service")}
    assert services.keys() == {"migrator", "migrator-grpc"}
    for spec in services.values():
        assert selected(spec["selector"]) == ["gateway"]
        assert {port["targetPort"] for port in spec["ports"]} <= ports["gateway"].keys()
    assert services["migrator-grpc"]["clusterIP"] == "None"
    chosen = [budget["spec"]["selector"] for budget in of_kind("PodDisruptionBudget")]
    budgets = [selected(selector["matchLabels"]) for selector in chosen]
    assert sorted(budgets) == [["gateway"], ["worker"]]
    monitor = one("PodMonitor")["spec"]
    (monitored,) = selected(monitor["selector"]["matchLabels"])
    assert {end["port"] for end in monitor["podMetricsEndpoints"]} <= ports[monitored].keys()
    assert selected(one("Deployment")["spec"]["selector"]["matchLabels"]) == ["gateway"]
    command = called("Deployment")
    assert command[command.index("--port") + 1] == str(ports["gateway"]["http"])
    assert command[command.index("--grpc-port") + 1] == str(ports["gateway"]["grpc"])
    (group,) = one("RayCluster")["spec"]["workerGroupSpecs"]
    assert group["rayStartParams"]["node-manager-port"] == str(ports["worker"]["raylet"])
    assert f"--address=migrator-head-svc:{ports['head']['gcs']}" in called("Job")


@pytest.mark.parametrize("pod", ["head", "worker", "gateway"])
def test_pods_that_stay_are_probed_at_ports_that_they_have(pod: str) -> None:
    container = container_of(pod)
    names = {port["name"] for port in container["ports"]}
    for kind in ("readinessProbe", "livenessProbe"):
        probe = container[kind]
        assert (probe.get("httpGet") or probe["tcpSocket"])["port"] in names
    if pod == "gateway":  # not ready: tenants of other GPUs would lose their gateways too
        assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/live"


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_commands_are_verbs_with_options_there_are(kind: str) -> None:
    command = called(kind)
    verb = command[command.index("migrator") + 1]
    options = set(re.findall(r"--[a-z-]+", migrator(verb, "--help", COLUMNS="200").out))
    own = command[command.index("migrator") :]
    assert {argument for argument in own if argument.startswith("--")} <= options


def test_the_job_is_part_of_the_ray_cluster_while_it_starts_the_scenario() -> None:
    """From elsewhere Ray can be reached by nobody who has no client's extras."""
    command = called("Job")
    assert command[:2] == ["ray", "start"]
    assert {"--num-cpus=0", "--num-gpus=0"} <= set(command)
    assert command[command.index("--cluster") + 1] == "auto"
    assert "--detach" in command


def test_the_scenario_has_a_gpu_per_pod_and_tokens_of_the_secret() -> None:
    scenario = read_cluster(EXAMPLE / "cluster.yaml")
    (group,) = one("RayCluster")["spec"]["workerGroupSpecs"]
    gpus = group["replicas"] * int(group["rayStartParams"]["num-gpus"])
    assert len(scenario.gpus) == gpus
    (generated,) = one("ConfigMap")["data"].values()
    live = yaml.safe_load(generated)["live"]
    assert live["host"] == "0.0.0.0"
    (end,) = one("PodMonitor")["spec"]["podMetricsEndpoints"]
    assert live["token_variables"]["admin"] == end["authorization"]["credentials"]["key"]
    (named,) = re.findall("for name in (.+?); do", DOCS)
    assert set(live["token_variables"].values()) == set(named.split())
    command = called("Job")
    assert Path(command[command.index("serve") + 1]).name in one("ConfigMap")["data"]
