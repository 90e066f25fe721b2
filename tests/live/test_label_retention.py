"""What is kept of the labels: an acknowledged label stays until a retraining has learned it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.amount import amount

from migrator.live import labels as labels_module
from migrator.live.labels import LabelLimits, Labels, NotKeptError

TENANTS = ("a", "b")
PICTURE_BYTES = 12


def picture(number: int) -> NDArray[np.uint8]:
    return np.full((3, 2, 2), number % 256, np.uint8)


def requests_in(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return set(connection.execute("SELECT tenant, request FROM sample"))


@dataclass
class Run:
    """Labels as a daemon uses them: windows pass, retrainings learn, the daemon is restarted."""

    path: Path
    window: int = 0
    since: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TENANTS, 0))
    running: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Tenant -> the first window that its retraining learns, and the window it was begun in."""
    acknowledged: dict[tuple[str, str], int] = field(default_factory=dict)

    def learned_before(self, tenant: str) -> int:
        job = self.running.get(tenant)
        return self.since[tenant] if job is None else min(job[0], self.since[tenant])

    def open(self) -> Labels:
        return Labels(
            self.path,
            LabelLimits(1, 2, PICTURE_BYTES * 6, 40, PICTURE_BYTES * 35),
            learned_before=self.learned_before,
        )

    async def add(self, labels: Labels, tenant: str, count: int) -> None:
        first = len(self.acknowledged)

        async def one(number: int) -> None:
            request = f"r{first + number}"
            try:
                await labels.add(tenant, self.window, picture(number), number % 3, 0, request)
            except NotKeptError:
                assert self.unlearned(tenant) + count > 35
            else:
                self.acknowledged[tenant, request] = self.window

        await asyncio.gather(*map(one, range(count)))

    def unlearned(self, tenant: str) -> int:
        at = self.learned_before(tenant)
        return sum(name == tenant and w >= at for (name, _), w in self.acknowledged.items())

    def missing(self) -> set[tuple[str, str]]:
        wanted = {
            (tenant, request)
            for (tenant, request), window in self.acknowledged.items()
            if window >= self.learned_before(tenant)
        }
        return wanted - requests_in(self.path)


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(TENANTS), st.integers(1, 15)),
    st.tuples(st.just("window"), st.just(""), st.integers(1, 3)),
    st.tuples(st.just("train"), st.sampled_from(TENANTS), st.just(0)),
    st.tuples(st.just("adopt"), st.sampled_from(TENANTS), st.just(0)),
    st.tuples(st.just("fail"), st.sampled_from(TENANTS), st.just(0)),
    st.tuples(st.just("roll back"), st.sampled_from(TENANTS), st.integers(0, 5)),
    st.tuples(st.just("restart"), st.just(""), st.just(0)),
)


async def scene(run: Run, steps: list[tuple[str, str, int]]) -> None:
    labels = run.open()
    for step, tenant, number in steps:
        match step:
            case "add":
                await run.add(labels, tenant, number)
            case "window":
                run.window += number
            case "train":
                run.running.setdefault(tenant, (run.since[tenant], run.window))
            case "adopt" if tenant in run.running:
                run.since[tenant] = run.running.pop(tenant)[1]
            case "fail":
                run.running.pop(tenant, None)
            case "roll back" if tenant not in run.running:
                # what was trimmed as learned is gone; only what was not learned yet must stay
                for key, window in list(run.acknowledged.items()):
                    if key[0] == tenant and window < run.since[tenant]:
                        del run.acknowledged[key]
                run.since[tenant] = min(number, run.since[tenant])
            case "restart":
                await labels.close()
                run.running.clear()
                labels = run.open()
                begun = max((w for w in run.acknowledged.values()), default=-1)
                assert labels.last_window >= begun
                run.window = max(run.window, labels.last_window + 1)
        assert not run.missing(), (step, tenant)
        for name in TENANTS:
            kept = labels.kept(name, 0, run.window + 1)
            assert kept == sum(request[0] == name for request in requests_in(run.path))
    await labels.close()


@settings(max_examples=amount(20, 40), deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=25))
def test_no_acknowledged_label_is_missing_before_it_is_learned(
    steps: list[tuple[str, str, int]],
) -> None:
    before = labels_module._TRIM_EVERY
    labels_module._TRIM_EVERY = 1
    try:
        with TemporaryDirectory() as folder:
            asyncio.run(scene(Run(Path(folder) / "labels.db"), steps))
    finally:
        labels_module._TRIM_EVERY = before


async def test_without_space_a_label_is_refused_until_a_retraining_has_learned(
    tmp_path: Path,
) -> None:
    path, since = tmp_path / "labels.db", {"a": 0, "b": 0}
    labels = Labels(path, LabelLimits(unlearned_rows=5), learned_before=since.get)
    for number in range(5):
        assert await labels.add("a", 0, picture(number), 0, 0, f"r{number}")
    with pytest.raises(NotKeptError, match="a has reached the limit of labels"):
        await labels.add("a", 0, picture(9), 0, 0, "one too many")
    assert not await labels.add("a", 0, picture(1), 0, 0, "r1")  # kept already
    # the limit is per tenant
    together = await asyncio.gather(
        labels.add("a", 0, picture(9), 0, 0, "again"),
        labels.add("b", 0, picture(9), 0, 0, "other"),
        return_exceptions=True,
    )
    assert isinstance(together[0], NotKeptError)
    assert together[1] is True
    since["a"] = 1
    assert await labels.add("a", 1, picture(9), 0, 0, "one too many")
    await labels.close()
    assert requests_in(path) == {
        *(("a", f"r{number}") for number in range(5)),
        ("a", "one too many"),
        ("b", "other"),
    }
