"""Damaged files of a stopped daemon: the next one serves, and says what it set aside."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from support.live_daemon import samples, scenario_file, served

from migrator.records.store import read_records

FILES = {"journal.db": b"serve", "labels.db": b"photos", "records.db": b"emulated"}
"""And what is in each of them as text."""


def damage(path: Path, text: bytes) -> None:
    """Flip the high bit of a letter: it is no UTF-8 any more."""
    content = bytearray(path.read_bytes())
    at = content.rindex(text)
    content[at] ^= 0x80
    path.write_bytes(content)


def test_damaged_files_are_set_aside_logged_recorded_and_counted(tmp_path: Path) -> None:
    path, state = scenario_file(tmp_path, "photos", window_s=3), tmp_path / "state"
    home = state / "live" / "small"
    paths = {"journal.db": state, "labels.db": home, "records.db": home}
    picture, label = samples(1, 1)
    with served(path, state) as daemon:
        assert daemon.infer("photos", picture[0], "first").status_code == 200
        assert daemon.feedback("photos", "first", int(label[0])).status_code == 200
        assert daemon.stop() == 0, daemon.said()
    for name, text in FILES.items():
        damage(paths[name] / name, text)
    with served(path, state) as daemon:
        assert daemon.infer("photos", picture[0], "second").status_code == 200
        assert daemon.feedback("photos", "second", int(label[0])).status_code == 200
        families = text_string_to_metric_families(daemon.client.get(f"{daemon.url}/metrics").text)
        counted = {
            sample.labels["file"]: sample.value
            for family in families
            for sample in family.samples
            if sample.name == "migrator_damaged_files_total"
        }
        assert counted == dict.fromkeys(FILES, 1)
        log = daemon.log.read_text(encoding="utf-8")
        assert daemon.stop() == 0, daemon.said()
    events = [each.words for each in read_records(home / "records.db").events]
    for name in FILES:
        (aside,) = paths[name].glob(f"{name}.damaged-*Z")
        assert any(name in each and str(aside) in each for each in events)
        assert any("ERROR" in each.upper() and str(aside) in each for each in log.splitlines())
