"""`reproduce map`: runs the map of leads, or continues it, and writes its page and picture."""

from __future__ import annotations

import sys
from pathlib import Path

from migrator.cli.app import print_json, progress, warm
from migrator.cli.cluster_verbs import ray_address
from migrator.core.errors import InputError


def reproduce_map(
    data: Path | None,
    *,
    quick: bool,
    draw: bool,
    runs: int | None,
    out: Path | None,
    results: Path | None,
    processes: int | None,
    ray: str | None,
    as_json: bool,
) -> None:
    """Run what the results file lacks and write FILE.html, FILE.png and FILE.jsonl.

    With `draw` run nothing, and draw the runs that every cell has.
    """
    from migrator.advise.trial import TrialResult
    from migrator.cluster.placement.workers import open_workers
    from migrator.report.html_page import (
        check_figure_path,
        check_page_path,
        write_figure,
        write_page,
    )
    from migrator.reproduce.map import FEWEST_RUNS, FULL_RUNS, NAME, MapSetting, measured, run_map
    from migrator.reproduce.map_page import map_figures, map_page, map_picture, summary
    from migrator.reproduce.results_file import open_results
    from migrator.simulate import tenant
    from migrator.simulate.compare import cores

    runs = runs or (FEWEST_RUNS if quick else FULL_RUNS)
    if runs < FEWEST_RUNS:
        raise InputError(f"--seeds: a map needs {FEWEST_RUNS} runs per cell or more; give as many")
    page = out or Path("out/map-quick.html" if quick else "out/map.html")
    page.parent.mkdir(parents=True, exist_ok=True)
    check_page_path(page, "--out")
    picture = page.with_suffix(".png")
    check_figure_path(picture, "--out")
    setting = MapSetting(data, quick, runs)
    trials = setting.trials()
    path = results or page.with_suffix(".jsonl")
    if draw and not path.is_file():
        raise InputError(f"--draw: there is no {path}; run the map first or name it with --results")
    with open_results(
        path, NAME, TrialResult, setting.as_json(), frozenset(trials), to_read=draw
    ) as file:
        left = len(trials) - len(file.finished)
        if draw and not setting.finished_runs(file.finished):
            raise InputError(
                f"--draw: {path} has no run of every cell yet; continue the map without --draw"
            )
        if left and not draw:
            at_once = processes or cores()
            where = "on Ray" if ray_address(ray) else f"{at_once} at a time"
            done = f", {len(file.finished)} done before" if file.finished else ""
            print(
                f"{len(setting.cells)} cells, {left} runs{done}, {where}; results are kept in "
                f"{path}, and the same command continues an interrupted map",
                file=sys.stderr,
            )
            warm([setting.ours])
            tenant.ready()
            with (
                open_workers(processes, ray_address(ray)) as workers,
                progress(left, "runs") as step,
            ):
                run_map(setting, file, workers, step)
        found, made_with = measured(setting, file.finished), file.settings
    write_page(map_page(found), page, "--out")
    write_figure(picture, "--out", lambda: map_page(found), lambda: map_picture(found))
    if as_json:
        figures = {**map_figures(found), "settings": made_with}
        print_json({**figures, "page": str(page), "picture": str(picture)})
        return
    print(summary(found))
    print(f"page     {page}\npicture  {picture}\nresults  {path}")
