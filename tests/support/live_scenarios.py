"""Small live scenarios: two tenants with given requests in every second, short windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from migrator.workload.live import LiveScenario, read_live

PROFILES = Path(__file__).parents[2] / "examples" / "live.profiles.json"


def live_file(
    folder: Path,
    counts: tuple[int, ...] = (20, 30),
    *,
    window_s: int = 1,
    slo_ms: float = 5000.0,
    live: dict[str, Any] | None = None,
) -> Path:
    """A scenario file whose tenants receive these counts by second; tenant b has twice as many."""
    (folder / "profiles.json").write_bytes(PROFILES.read_bytes())
    for name, factor in (("a", 1), ("b", 2)):
        rows = "".join(f"{second},{factor * count}\n" for second, count in enumerate(counts))
        (folder / f"{name}.csv").write_text(f"second,count\n{rows}", encoding="utf-8")
    tenants = [
        {
            "name": name,
            "model": "small-cnn",
            "profile": "profiles.json",
            "slo_ms": slo_ms,
            "batch": 4,
            "arrivals": {"trace": f"{name}.csv", "offset_s": 0},
            "live": {"benchmark": "nc-synthetic", "pixels": 16},
        }
        for name in ("a", "b")
    ]
    written: dict[str, Any] = {
        "version": 1,
        "gpu": "A100-40GB",
        "window_s": window_s,
        "windows": len(counts) // window_s,
        "tenants": tenants,
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(written | ({"live": live} if live else {})), encoding="utf-8")
    return path


def live_scenario(folder: Path, *counts: int, **keys: Any) -> LiveScenario:
    """The same, read."""
    return read_live(live_file(folder, counts or (20, 30), **keys))
