"""How soon the page can be used, and what an hour of it holds: python -m benchmarks.page_usable

An hour of three tenants is simulated into records, `migrator dashboard` serves them on loopback,
and a headless Chromium with an empty cache opens the page several times. Usable is when the charts
are drawn and can be clicked (the page's own mark); the heap is measured once the history is there
and garbage has been collected.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine

WINDOWS = 18
SCENARIO: Mapping[str, Any] = {
    "version": 1,
    "gpu": "A100-40GB",
    "policy": "equal-mig",
    "forecaster": "last-mean",
    "tenants": [
        {
            "name": name,
            "model": "resnet-50",
            "slo_ms": 100,
            "arrivals": {"generator": "azure", "mean_rps": 40},
            "retraining": {"dataset": "nc-cifar-10"},
        }
        for name in ("photos", "cameras", "doors")
    ],
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MARK = "() => performance.getEntriesByName('usable')[0]?.startTime ?? null"
MIGRATOR = (sys.executable, "-m", "migrator")


def records(folder: Path) -> Path:
    """An hour, simulated."""
    scenario, path = folder / "hour.yaml", folder / "hour.db"
    scenario.write_text(json.dumps(SCENARIO), encoding="utf-8")
    arguments = (
        "simulate",
        str(scenario),
        "--windows",
        str(WINDOWS),
        "--records",
        str(path),
        "--json",
    )
    subprocess.run([*MIGRATOR, *arguments], check=True, stdout=subprocess.DEVNULL)
    return path


@contextmanager
def shown(path: Path) -> Iterator[str]:
    """The page's address; its server is ended whatever happens."""
    command = [*MIGRATOR, "dashboard", str(path), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()


def opened(browser: Any, url: str) -> tuple[float, float]:
    """Milliseconds until it is usable, megabytes of its heap with the whole history."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(url)
    page.wait_for_function(MARK)
    usable_ms = float(page.evaluate(MARK))
    page.wait_for_timeout(2000)
    session = context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    context.close()
    return usable_ms, heap / 1e6


def measured(url: str, times: int) -> dict[str, Any]:
    """Several pages one after the other; the first one also starts the browser's processes."""
    driver: Any = import_module("playwright.sync_api")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise SystemExit("there is no Chromium on this machine; install it")
    with driver.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=program, args=options)
        pages = [opened(browser, url) for _ in range(times)]
        browser.close()
    usable = [round(problem) for problem, _ in pages]
    return {
        "usable_ms": usable,
        "usable_median_ms": statistics.median(usable),
        "heap_mb": round(max(heap for _, heap in pages), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    load_average = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory() as folder, shown(records(Path(folder))) as url:
        results = measured(url, settings.times)
    print(json.dumps(results, indent=1))
    if settings.out:
        about = {"machine": describe_machine(), "load_average": load_average}
        settings.out.write_text(json.dumps({**about, **results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
