"""A running retraining that gets another MPS share: its process ends, another one continues."""

from __future__ import annotations

from pathlib import Path

from support.faults import settled
from support.live_daemon import samples, scenario_file, served


def test_a_real_daemon_continues_a_retraining_on_another_share(tmp_path: Path) -> None:
    policy = "support.live_policies:Resizing"
    path = scenario_file(tmp_path, "photos", window_s=8, policy=policy, training_ratio=40.0)
    with served(path, tmp_path / "state") as daemon:
        settled(daemon)
        pictures, classes = samples(1, 60)
        assert daemon.upload("photos", pictures, classes, "taught").status_code == 200
        daemon.wait_for(lambda now: now["tenants"]["photos"]["version"] >= 2, "it is retrained")
        said = daemon.log.read_text(encoding="utf-8")
        assert said.index("train 25% for photos") < said.index("train 50% for photos")
        assert "ended on request" in said
        assert daemon.stop() == 0, daemon.said()
