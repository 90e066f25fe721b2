"""The files that a release needs agree with each other, with the package and with the API."""

from __future__ import annotations

import re
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

import migrator
from migrator.serving.http.app import OPERATIONS

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = ROOT / ".github" / "workflows" / "checks.yml"


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_wheel_carries_name_licence_and_extras(built: Path) -> None:
    (wheel,) = built.glob("migrator_gpu-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        folder = f"migrator_gpu-{migrator.__version__}.dist-info"
        metadata = message_from_string(packed.read(f"{folder}/METADATA").decode())
        licence = packed.read(f"{folder}/licenses/LICENSE").decode()
        commands = packed.read(f"{folder}/entry_points.txt").decode()
    assert (metadata["Name"], metadata["License-Expression"]) == ("migrator-gpu", "Apache-2.0")
    assert licence == text_of("LICENSE")
    assert "migrator = migrator.__main__:main" in commands
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    # an extra that contains others under another name would bring a stranger's package
    assert "migrator" not in " ".join(requirement.name for requirement in required)
    asked = {"extra": "cluster"}
    brought = {
        requirement.name
        for requirement in required
        if requirement.marker and requirement.marker.evaluate(asked)
    }
    assert {"ray", "starlette", "torch"} <= brought


def test_the_citation_names_the_version_and_the_paper() -> None:
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert citation["version"] == migrator.__version__
    assert citation["license"] == PROJECT["license"]
    paper = citation["preferred-citation"]
    assert len(paper["authors"]) == 9
    readme = text_of("README.md")
    assert paper["title"] in readme
    assert "(CITATION.cff)" in readme


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\S+)", text_of("CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == migrator.__version__


def test_classifiers_workflow_and_requirement_name_the_same_pythons() -> None:
    prefix = "Programming Language :: Python :: "
    named = [text.removeprefix(prefix) for text in PROJECT["classifiers"] if prefix in text]
    versions = [text for text in named if "." in text]
    matrix = yaml.safe_load(text_of(str(WORKFLOW)))["jobs"]["checks"]["strategy"]["matrix"]
    assert matrix["python"] == versions
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert tomllib.loads(text_of("pyproject.toml"))["tool"]["ruff"]["target-version"] == (
        f"py{versions[0].replace('.', '')}"
    )


def test_the_workflow_runs_ci_with_no_more_rights_than_it_needs() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert "permissions" not in job
    steps = job["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    used = [step["uses"] for step in steps if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in used)
    checkout = next(step for step in steps if step.get("uses", "").startswith("actions/checkout"))
    assert checkout["with"]["persist-credentials"] is False
    assert "secrets" not in WORKFLOW.read_text(encoding="utf-8")


def test_security_names_the_token_of_every_operation() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text_of("SECURITY.md"), re.MULTILINE))
    tokens = {"open": "none", "any": "any", "tenant": "a tenant's", "admin": "`admin`"}
    for operation in OPERATIONS:
        path = operation.paths[0].replace("{name}", "NAME")
        row = tokens[operation.access]
        if path == "/admin/tenants":
            row += " and the key that an agent shares with its daemon"
        below = path.removeprefix("/v2/models/NAME")
        named = rows[row].replace("`GET ", "`")
        assert f"`{path}`" in named or f"`{below}`" in named, path
