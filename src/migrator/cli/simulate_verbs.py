"""Verbs about runs: simulate, compare, policies, forecasters, schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app
from migrator.cli.cluster_verbs import Jobs, RayAddress, simulate_cluster
from migrator.cli.plan_verbs import AsJson
from migrator.cli.printing import print_json, progress, warm
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.core.outcome import RunOutcome
    from migrator.policies.policy import Policy
    from migrator.simulate.compare import Job

ScenarioFile = Annotated[Path, typer.Argument(help="Scenario, version 1 (YAML).")]
Forecaster = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who looks ahead; default as the scenario says.")
]
Windows = Annotated[
    int | None, typer.Option(metavar="N", help="Run N windows; default as the scenario says.")
]
Drawn = Annotated[
    bool,
    typer.Option(
        "--drawn/--expected",
        help="Draw for every request whether it is answered correctly, or count the accuracy.",
    ),
]


@app.command()
def simulate(
    scenario: ScenarioFile,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME...]",
            help="Policies to run (`migrator policies` lists them); default as the scenario says.",
        ),
    ] = None,
    side_by_side: Annotated[
        bool,
        typer.Option(
            "--side-by-side",
            help="Run migrator, migrator-replanned and oracle: what replanning regains.",
        ),
    ] = False,
    windows: Windows = None,
    forecaster: Forecaster = None,
    seed: Annotated[int | None, typer.Option(help="Other arrivals from the same scenario.")] = None,
    drawn: Drawn = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page with every window.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FILE.db", help="Write records for `migrator dashboard FILE.db`."),
    ] = None,
    at_once: Jobs = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario request by request and say what became of every request.

    Of a cluster scenario the tenants are placed first, then every GPU is run (--jobs, --ray).
    """
    from migrator.core.comparison import summarise
    from migrator.observe.run_text import comparison_table, run_table
    from migrator.scenario.cluster import is_cluster
    from migrator.scenario.file import read_scenario
    from migrator.simulate.compare import Job

    names = _asked(policy, side_by_side)
    if is_cluster(scenario):
        _require_no_files(report, records)
        simulate_cluster(
            scenario,
            names,
            windows=windows,
            forecaster=forecaster,
            seed=seed,
            drawn=drawn,
            jobs=at_once,
            ray=ray,
            as_json=as_json,
        )
        return
    _require_no_workers(at_once, ray)
    if report is not None:
        from migrator.observe.page_html import check_page_path

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
        print_json(_runs_json(outcomes, side_by_side))
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
def compare(
    scenarios: Annotated[
        list[Path], typer.Argument(metavar="SCENARIO...", help="Scenarios, version 1 (YAML).")
    ],
    policies: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME...",
            help="Policies to compare; `all` for every one but the static splits.",
        ),
    ] = "migrator,migrator-replanned,ekya,astraea,paris,oracle",
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Runs per policy, each with other arrivals.")
    ] = 3,
    windows: Windows = None,
    forecaster: Forecaster = None,
    drawn: Drawn = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; default one per core.")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the comparison as FILE.html or FILE.png."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write records, a file per policy, for `migrator dashboard`."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run scenarios under several policies and seeds: a table, and a figure on request."""
    from migrator.core.comparison import leads, summarise
    from migrator.observe.run_json import lead_json, run_json
    from migrator.observe.run_text import comparison_table
    from migrator.policies.registry import policies as known
    from migrator.scenario.file import read_scenario
    from migrator.simulate.compare import Job

    if figure is not None:
        from migrator.observe.comparison_figure import check_comparison_path

        check_comparison_path(figure)
    every = [each for each in known() if not each.startswith("static-")]
    names = every if policies == "all" else _names(policies, "--policies")
    if records is not None:
        from migrator.cli import simulated_records

        files = simulated_records.files_in(records, names)
    jobs = [
        Job(partial(read_scenario, path), name, forecaster, seed, windows, drawn, called)
        for path, called in _called(scenarios)
        for name in names
        for seed in _seeds(path, seeds)
    ]
    outcomes = _compared(jobs, processes)
    rows = summarise(outcomes)
    if figure is not None:
        from migrator.observe.comparison_figure import draw_comparison

        draw_comparison(rows, figure)
    if records is not None:
        simulated_records.write_each(files, jobs, outcomes)
    if as_json:
        answer = {
            "rows": [asdict(each) for each in rows],
            "leads": [lead_json(each) for each in leads(rows)],
            "runs": [run_json(each) for each in outcomes],
        }
        print_json(answer)
        return
    print(comparison_table(rows))
    if figure is not None:
        print(f"\nfigure  {figure}")
    if records is not None:
        print(f"\nrecords {records}  (look at them: migrator dashboard {records}/NAME.db ...)")


@app.command()
def policies(
    name: Annotated[
        str | None, typer.Argument(help="One policy: how it works and what we adapted.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the policies: how they share the GPU, what they see, when they decide."""
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
    as_json: Annotated[bool, typer.Option("--json", help="It always is JSON.")] = True,
) -> None:
    """Print the JSON schema of scenario files, for editors and checks."""
    assert as_json
    from migrator.scenario.schema import scenario_schema

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
        return [None] if policy is None else _names(policy, "--policy")
    if policy is not None:
        raise InputError(
            f"--side-by-side: it runs {', '.join(SIDE_BY_SIDE)} and --policy is given as well; "
            "leave out one of the two"
        )
    return SIDE_BY_SIDE


def _require_no_workers(at_once: int | None, ray: str | None) -> None:
    if at_once is not None or ray is not None:
        option = "--jobs" if ray is None else "--ray"
        raise InputError(f"{option}: this is for a cluster scenario; leave it out for one GPU")


def _require_no_files(report: Path | None, records: Path | None) -> None:
    if report is not None or records is not None:
        option = "--records" if report is None else "--report"
        raise InputError(
            f"{option}: this is of one GPU and the scenario is of a cluster; use --json, or "
            "`migrator cluster plan --out`"
        )


def _runs_json(outcomes: Sequence[RunOutcome], side_by_side: bool) -> object:
    """One run as it is, several as a list; side by side with what replanning regains."""
    from migrator.core.comparison import leads, summarise
    from migrator.observe.run_json import lead_json, run_json

    runs = [run_json(each) for each in outcomes]
    if not side_by_side:
        return runs[0] if len(runs) == 1 else runs
    (lead,) = leads(summarise(outcomes))
    return {"runs": runs, "lead": lead_json(lead)}


def _names(text: str, option: str) -> list[str]:
    from migrator.policies.registry import policy

    names = [each.strip() for each in text.split(",") if each.strip()]
    if not names:
        raise InputError(f"{option}: no name given; `migrator policies` lists them")
    return [policy(each).name for each in dict.fromkeys(names)]


def _called(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Every scenario once with a name of its own: by its path where another has the same name."""
    from migrator.scenario.file import read_scenario

    found = {path: read_scenario(path).name for path in dict.fromkeys(paths)}
    names = list(found.values())
    return [(path, name if names.count(name) == 1 else str(path)) for path, name in found.items()]


def _seeds(path: Path, seeds: int) -> Iterable[int]:
    from migrator.scenario.file import read_scenario

    first = read_scenario(path).seed
    return range(first, first + seeds)


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


def _compared(jobs: Sequence[Job], processes: int | None) -> list[RunOutcome]:
    from migrator.simulate.compare import run_all

    warm({str(job.policy) for job in jobs})
    found: dict[int, RunOutcome] = {}
    with progress(len(jobs), "runs") as step:
        for place, outcome in run_all(jobs, processes):
            found[place] = outcome
            step()
    return [found[place] for place in sorted(found)]


def _write_report(job: Job, outcomes: Sequence[RunOutcome], path: Path) -> None:
    from migrator.observe.page_html import write_page
    from migrator.observe.run_report import run_page
    from migrator.policies.registry import policy
    from migrator.simulate.run import overheads_s

    this = job.scenario()
    # cold parts have one length per tenant only where all policies share the GPU alike
    overheads = [overheads_s(this, policy(each.policy)) for each in outcomes]
    alike = overheads[0] if all(each == overheads[0] for each in overheads) else None
    write_page(run_page(outcomes, this.board, this.slot_s, alike), path)
