"""Dashboard, rules and documentation speak of metrics that there are, and promtool agrees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.promql import names_in, promtool
from support.watched_run import TABLE, Run, eventful, sample_names, table_of

ROOT = Path(__file__).parent.parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = PROMETHEUS / "migrator.rules.yml"
DOCS = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
BESIDE = {"up", "ALERTS", "process_cpu_seconds_total", "process_resident_memory_bytes"}
"""Of Prometheus itself and of every Python process."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return eventful(tmp_path_factory.mktemp("run"))


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    text = (ROOT / "deploy" / "grafana" / "migrator.json").read_text(encoding="utf-8")
    made: dict[str, Any] = json.loads(text)
    return made


def queries(node: object) -> Iterator[str]:
    """Every query in the dashboard, wherever it is."""
    if isinstance(node, dict):
        yield from (node[key] for key in ("expr", "definition") if key in node)
        for value in node.values():
            yield from queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from queries(value)


def test_rules_read_what_there_is(run: Run) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    defined = sample_names(run) | recorded | BESIDE
    for rule in rules():
        read = names_in(rule["expr"])
        assert read, rule
        assert read <= defined, rule
    used = set().union(*(names_in(rule["expr"]) for rule in rules()))
    assert recorded - used == {
        "tenant:migrator_latency_seconds:p99_5m",
        "instance:migrator_overhead_hidden:ratio_rate1h",
    }, "recorded for people, not for alerts"


def test_every_alert_says_what_is_wrong_and_where_to_read_on() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    documented = re.findall(r"^\| (Migrator\w+) \|", DOCS, re.M)
    assert sorted(documented) == sorted(alert["alert"] for alert in alerts)
    for alert in alerts:
        assert alert["labels"]["severity"] in ("info", "warning", "critical")
        assert alert["annotations"]["summary"].endswith(".")
        where = f"See {alert['alert']} in docs/observability.md."
        assert alert["annotations"]["runbook"] == where


def test_every_alert_is_tried_out() -> None:
    tried = (PROMETHEUS / "rules_test.yml").read_text(encoding="utf-8")
    for rule in rules():
        if "alert" in rule:
            assert re.search(rf"alertname: {rule['alert']}\n\s+exp_alerts:", tried), rule["alert"]


def test_the_dashboard_reads_what_there_is_and_shows_all_of_it(run: Run) -> None:
    there = sample_names(run)
    read = set().union(*(names_in(query) for query in queries(dashboard())))
    variables = {"job", "instance", "tenant"}  # what label_values is asked for
    assert read - variables <= there | BESIDE
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in read}
    shown = {row[0] for row in table_of(run)}
    assert shown - bare == {
        "migrator_drained",
        "migrator_window_seconds",
    }, "metrics that no panel shows"


def test_the_dashboard_imports_cleanly() -> None:
    made = dashboard()
    assert made["id"] is None
    assert made["schemaVersion"] >= 39
    panels = made["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert all(
                target["datasource"]["uid"] == "${datasource}" for target in panel["targets"]
            )
            assert panel["description"].endswith(".")
    names = [variable["name"] for variable in made["templating"]["list"]]
    assert names == ["datasource", "job", "instance", "tenant"]


def test_the_documentation_has_every_metric_as_it_is(run: Run) -> None:
    rows = [
        f"| `{name}` | {kind} | {labels} | {what} |" for name, kind, labels, what in table_of(run)
    ]
    wanted = "\n".join([f"| {' | '.join(TABLE)} |", "|---|---|---|---|", *rows])
    assert wanted in DOCS, f"docs/observability.md should have this table:\n{wanted}"


def test_promtool_takes_configuration_rules_metrics_and_queries(run: Run, tmp_path: Path) -> None:
    promtool("check", "config", PROMETHEUS / "prometheus.yml")
    promtool("check", "rules", RULES)
    promtool("test", "rules", PROMETHEUS / "rules_test.yml")
    promtool("check", "metrics", given=run.page())
    chosen = re.compile(r"\$(job|instance|tenant)")
    asked = [query for query in queries(dashboard()) if not query.startswith("label_values")]
    as_rules = [
        {"record": f"query:{number}", "expr": chosen.sub(".*", query)}
        for number, query in enumerate(asked)
    ]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": as_rules}]}))
    promtool("check", "rules", path)
