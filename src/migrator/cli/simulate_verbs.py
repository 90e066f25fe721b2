"""Verbs for simulated runs: simulate, policies, forecasters, schema, example."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app
from migrator.cli.cluster_verbs import simulate_cluster
from migrator.cli.options import AsJson, Drawn, Forecaster, Jobs, RayAddress, ScenarioFile, Windows
from migrator.cli.printing import print_json, progress, warm
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.core.outcome import RunOutcome
    from migrator.policies.policy import Policy
    from migrator.simulate.compare import Job


@app.command()
def simulate(
    scenario: ScenarioFile,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME...]",
            help="Policies to run (`migrator policies` lists them); default: the scenario's.",
        ),
    ] = None,
    side_by_side: Annotated[
        bool,
        typer.Option(
            "--side-by-side",
            help="Run migrator, migrator-replanned and oracle to see what replanning gains.",
        ),
    ] = False,
    windows: Windows = None,
    forecaster: Forecaster = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the arrivals; default: the scenario's.")
    ] = None,
    drawn: Drawn = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a report with every window.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FILE.db", help="Write records for `migrator dashboard FILE.db`."),
    ] = None,
    at_once: Jobs = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a scenario request by request and report latency, accuracy and goodput.

    For a cluster scenario, tenants are placed first, then every GPU is simulated (--jobs, --ray).
    """
    from migrator.core.comparison import leads, summarise
    from migrator.report.comparison import comparison_table
    from migrator.report.run_json import run_json, runs_json
    from migrator.report.run_text import run_table
    from migrator.simulate.compare import Job
    from migrator.workload.cluster import is_cluster
    from migrator.workload.file import read_scenario

    names = _asked(policy, side_by_side)
    if is_cluster(scenario):
        _require_no_files(report, records)
        simulate_cluster(
            scenario,
            names,
            side_by_side=side_by_side,
            windows=windows,
            forecaster=forecaster,
            seed=seed,
            drawn=drawn,
            jobs=at_once,
            ray=ray,
            as_json=as_json,
        )
        return
    require_no_workers(at_once, ray)
    if report is not None:
        from migrator.report.html_page import check_page_path

        check_page_path(report)
    if records is not None:
        from migrator.cli import simulated_records

        simulated_records.check(records)
    source = partial(read_scenario, scenario)
    jobs = [Job(source, each, forecaster, seed, windows, drawn) for each in names]
    outcomes = list(_simulated(jobs))
    if report is not None:
        _write_report(jobs[0], outcomes, report)
    if records is not None:
        simulated_records.write(records, jobs, outcomes)
    if as_json:
        runs = [run_json(each) for each in outcomes]
        print_json(runs_json(runs, leads(summarise(outcomes))[0] if side_by_side else None))
        return
    tables = [run_table(each) for each in outcomes]
    if len(outcomes) > 1:
        tables.append(comparison_table(summarise(outcomes)))
    print("\n\n".join(tables))
    if report is not None:
        print(f"\nreport  {report}")
    if records is not None:
        print(f"\nrecords {records}  (look at them: migrator dashboard {records})")


@app.command()
def policies(
    name: Annotated[
        str | None, typer.Argument(help="Describe this policy and how it was adapted.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the policies: how each shares the GPU, what it observes, when it decides."""
    from migrator.policies.registry import about, policy
    from migrator.policies.registry import policies as known

    chosen = list(known().values()) if name is None else [policy(name)]
    if as_json:
        print_json([_policy_json(each) for each in chosen])
    elif name is not None:
        print(about(name))
    else:
        for each in chosen:
            print(f"{each.name:<20} {each.sharing:<14} {each.summary}")


@app.command()
def forecasters(as_json: AsJson = False) -> None:
    """List the forecasters."""
    from migrator.forecast.registry import forecasters as known

    if as_json:
        print_json([{"name": e.name, "summary": e.summary} for e in known().values()])
        return
    for each in known().values():
        print(f"{each.name:<20} {each.summary}")


@app.command()
def schema(
    as_json: Annotated[bool, typer.Option("--json", help="The output is always JSON.")] = True,
) -> None:
    """Print the JSON schema of scenario files."""
    assert as_json
    from migrator.workload.entries import scenario_schema

    print_json(scenario_schema())


def _policy_json(policy: Policy) -> dict[str, object]:
    from migrator.policies.registry import about

    return {
        "name": policy.name,
        "summary": policy.summary,
        "sharing": str(policy.sharing),
        "sight": str(policy.sight),
        "every_s": policy.every_s,
        "on_completion": policy.on_completion,
        "about": about(policy.name),
    }


def _asked(policy: str | None, side_by_side: bool) -> Sequence[str | None]:
    """Names of the policies to run; None: the scenario's own."""
    from migrator.core.comparison import SIDE_BY_SIDE

    if not side_by_side:
        return [None] if policy is None else names_in(policy, "--policy")
    if policy is not None:
        raise InputError(
            f"--side-by-side: it runs {', '.join(SIDE_BY_SIDE)}, and --policy is given as well; "
            "leave one of them out"
        )
    return SIDE_BY_SIDE


def require_no_workers(at_once: int | None, ray: str | None) -> None:
    """InputError if an option is given that only cluster scenarios support."""
    if at_once is not None or ray is not None:
        option = "--jobs" if ray is None else "--ray"
        raise InputError(f"{option}: only for cluster scenarios; leave it out for one GPU")


def _require_no_files(report: Path | None, records: Path | None) -> None:
    if report is not None or records is not None:
        option = "--records" if report is None else "--report"
        raise InputError(
            f"{option}: not supported for cluster scenarios; use --json, or "
            "`migrator cluster plan --out`"
        )


def names_in(text: str, option: str) -> list[str]:
    """The policies named by an option, each once."""
    from migrator.policies.registry import policy

    names = [each.strip() for each in text.split(",") if each.strip()]
    if not names:
        raise InputError(f"{option}: no name given; `migrator policies` lists them")
    return [policy(each).name for each in dict.fromkeys(names)]


def _simulated(jobs: Sequence[Job]) -> Iterator[RunOutcome]:
    prepared = [(job, job.scenario()) for job in jobs]
    warm(this.policy for _, this in prepared)
    with progress(sum(this.windows for _, this in prepared), "windows") as step:
        for job, _ in prepared:
            done = []
            for window in job.windows_of():
                done.append(window)
                step()
            yield job.outcome(tuple(done))


def _write_report(job: Job, outcomes: Sequence[RunOutcome], path: Path) -> None:
    from migrator.cli.simulated_records import recorded
    from migrator.report.html_page import write_page
    from migrator.report.run_page import run_page

    write_page(run_page([recorded(job, each) for each in outcomes], job.scenario().board), path)


_WINDOW, _QUICKSTART = "window", "quickstart"


@app.command()
def example(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[window|quickstart|W1...W16]",
            help="A problem for `plan`, or a scenario for `simulate`.",
        ),
    ] = _WINDOW,
) -> None:
    """Print an example: a window to plan, a commented scenario, or a workload of the paper."""
    if name == _WINDOW:
        from migrator.plan.example import example_problem

        print_json(example_problem())
        return
    from migrator.workload.workloads import quickstart_yaml, workload_yaml, workloads

    if name == _QUICKSTART:
        print(quickstart_yaml(), end="")
    elif name.upper() in workloads():
        print(workload_yaml(name.upper()), end="")
    else:
        raise InputError(f"example: there is no {name[:100]!r}; use window, quickstart, W1 to W16")
