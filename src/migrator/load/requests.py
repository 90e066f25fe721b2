"""The requests of a load: when each is sent, which labelled sample it asks for, and its outcome.

Times are drawn from the traces as in the simulator. Samples are those of the window, every class
equally likely. Models are pre-trained on the benchmark's first scenario, so window 0 shows its
second one; after the last scenario the data stays the same. If answers are labelled, a sample that
a model may have learned in an earlier window is not used again in a later one. If a window's
training samples are uploaded before it, requests use held-out samples only.

The daemon learns labels in the window after the one they came in, and estimates the gain late in
that one. So a window's samples are uploaded in the middle of the window before it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.outcome import ClientSeconds, ClientTally, ClientWindow, Latencies, LoadOutcome
from migrator.core.scenario import Scenario
from migrator.io.http_client import NoAnswerError, Reply
from migrator.io.http_pool import HttpPool
from migrator.learn.benchmarks.benchmark import Benchmark, Material, resize_images
from migrator.learn.model import Inputs
from migrator.learn.samples import Samples, concatenate
from migrator.load.server import ModelInput, Server, encode_samples, error_in
from migrator.workload.arrivals import TenantArrivals
from migrator.workload.live import LiveTenant

_DEALT, _ASKED, _UPLOADED = 10, 11, 12
"""Random streams that must differ from those of the benchmarks."""

Rows = NDArray[np.intp]
REFUSED = {429: "queue full", 503: "no instance ready"}
GIVEN_UP = 504
MOST_REASONS = 20
"""Number of failure reasons that are counted separately."""
OTHER = "other"


class Questions:
    """A benchmark's samples as requests, window by window."""

    def __init__(
        self, benchmark: Benchmark, material: Material, seed: int, *, held_out: bool = False
    ) -> None:
        """`held_out`: ask only for held-out samples; the others are uploaded to train on."""
        self._benchmark, self._seed, self._held_out = benchmark, seed, held_out
        self._every = concatenate((material.train, material.held_out))
        self._learned = np.arange(len(self._every)) < len(material.train)
        """Which samples models may have been trained on."""

    def scenario(self, window: int) -> int:
        """The benchmark's scenario for a window."""
        return min(window + 1, self._benchmark.scenarios - 1)

    @property
    def samples(self) -> Samples:
        return self._every

    def rows(self, window: int, count: int) -> Rows:
        """The samples of a window's `count` requests, in order."""
        scenario = self.scenario(window)
        classes = self._benchmark.classes_by(scenario)
        draw = np.random.default_rng((self._seed, _ASKED, window))
        labels = draw.integers(classes, size=count)
        rows = np.empty(count, dtype=np.intp)
        for label in range(classes):
            places = np.flatnonzero(labels == label)
            pool = draw.permutation(self._pool(scenario, label))
            rows[places] = np.resize(pool, len(places))
        return rows

    def training_rows(self, window: int, since: int | None) -> Rows:
        """The samples to train on that are new in a window, shuffled.

        `since`: the window whose samples are known; None: only those of the first scenario are.
        """
        scenario, known = self.scenario(window), 0 if since is None else self.scenario(since)
        arrives = self._every.arrives
        new = (arrives > known) & (arrives <= scenario) & self._learned
        if self._benchmark.drifts:
            new &= arrives == scenario  # it shows all classes as they look now
        draw = np.random.default_rng((self._seed, _UPLOADED, window))
        return draw.permutation(np.flatnonzero(new))

    def _pool(self, scenario: int, label: int) -> Rows:
        """The samples of a class that a scenario may use."""
        own = self._every.labels == label
        if self._held_out:
            own &= ~self._learned
        if self._benchmark.drifts:
            return np.flatnonzero(own & (self._every.arrives == scenario))
        if self._held_out:
            return np.flatnonzero(own)
        first = max(1, self._benchmark.scenario_of(label))
        if self._benchmark.scenario_of(label) == 0:
            own &= ~self._learned  # models are pre-trained on the others
        # the class looks the same in every window, so each window gets its own part of the samples
        order = np.random.default_rng((self._seed, _DEALT, label)).permutation(np.flatnonzero(own))
        parts = self._benchmark.scenarios - first
        return order[scenario - first :: parts] if len(order) >= parts else order


@dataclass(frozen=True, eq=False)
class Schedule:
    """Requests in the order of their due times, by column."""

    due_s: NDArray[np.float64]
    """Seconds since the beginning of the first window."""
    tenant: NDArray[np.int64]
    """Index among the tenants of the load."""
    window: NDArray[np.int64]
    """Window of the run, from 0."""
    row: NDArray[np.intp]
    """Index of the sample."""

    def __len__(self) -> int:
        return len(self.due_s)

    def since(self, second: float) -> Schedule:
        later = self.due_s >= second
        return Schedule(self.due_s[later], self.tenant[later], self.window[later], self.row[later])


def times_s(scenario: Scenario, index: int, windows: int, speed: float) -> NDArray[np.float64]:
    """Due times of a tenant's requests in the first `windows` windows, with its trace sped up by
    `speed`."""
    tenant, window_s = scenario.tenants[index], scenario.window_s
    arrivals = TenantArrivals(tenant.trace, scenario.slot_s, scenario.seed, index)
    parts = []
    for window in range(scenario.windows):
        begin_s = tenant.offset_s + window * window_s
        # window by window like the simulator, because the drawn times depend on the start
        parts.append(arrivals.times(begin_s, begin_s + window_s) - tenant.offset_s)
    due_s = np.concatenate(parts) / speed
    return due_s[due_s < windows * window_s]


def schedule(
    scenario: Scenario,
    tenants: Sequence[int],
    questions: Sequence[Questions],
    first: int,
    windows: int,
    speed: float,
) -> Schedule:
    """All requests of some tenants. `first`: the server's number of the first window."""
    parts = []
    for place, (index, asked) in enumerate(zip(tenants, questions, strict=True)):
        due_s = times_s(scenario, index, windows, speed)
        window = (due_s // scenario.window_s).astype(np.int64)
        row = np.concatenate(
            [asked.rows(first + each, int((window == each).sum())) for each in range(windows)]
        )
        parts.append((due_s, np.full(len(due_s), place), window, row))
    due_s, tenant, window, row = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(due_s, kind="stable")
    return Schedule(due_s[order], tenant[order], window[order], row[order])


@dataclass
class Account:
    """Counts of one tenant in one window, as in `ClientTally`."""

    sent: int = 0
    goodput: int = 0
    wrong: int = 0
    late: int = 0
    dropped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    """In seconds."""
    versions: Counter[str] = field(default_factory=Counter)
    labels_stored: int = 0
    labels_lost: int = 0

    def fail(self, reason: str) -> None:
        known = reason in self.failed or len(self.failed) < MOST_REASONS
        self.failed[reason if known else OTHER] += 1


class Ledger:
    """All tenants and windows of a load."""

    def __init__(self, tenants: Sequence[str], windows: Sequence[int], seconds: int) -> None:
        self._tenants, self._windows = tuple(tenants), tuple(windows)
        self._accounts = {(name, window): Account() for name in tenants for window in windows}
        self._seconds = {name: np.zeros((3, seconds), dtype=np.int64) for name in tenants}
        self._lag_s: list[float] = []
        self.count = 0
        """Requests sent so far."""
        self.right = 0
        """Goodput so far."""

    def account(self, tenant: str, window: int) -> Account:
        return self._accounts[tenant, window]

    def sent(self, tenant: str, window: int, second: int, lag_s: float) -> None:
        """Count a request that was sent."""
        self.account(tenant, window).sent += 1
        self._seconds[tenant][0, second] += 1
        self._lag_s.append(lag_s)
        self.count += 1

    def in_time(self, tenant: str, window: int, second: int, *, right: bool) -> None:
        account = self.account(tenant, window)
        account.goodput += right
        account.wrong += not right
        self.right += right
        self._seconds[tenant][1, second] += 1
        self._seconds[tenant][2, second] += right

    def outcome(self, *, ended: str | None, **about: Any) -> LoadOutcome:
        accounts = self._accounts
        windows = []
        for window in self._windows:
            own = {name: accounts[name, window] for name in self._tenants}
            if any(account.sent for account in own.values()):
                tallies = {name: _tally([account]) for name, account in own.items()}
                windows.append(ClientWindow(window, tallies, _tally(own.values())))
        return LoadOutcome(
            windows=tuple(windows),
            tenants={
                name: _tally(accounts[name, window] for window in self._windows)
                for name in self._tenants
            },
            whole=_tally(accounts.values()),
            seconds={
                name: ClientSeconds(*(tuple(row.tolist()) for row in counts))
                for name, counts in self._seconds.items()
            },
            lag_p99_s=float(np.percentile(self._lag_s, 99)) if self._lag_s else 0.0,
            ended=ended,
            **about,
        )


def _tally(accounts: Iterable[Account]) -> ClientTally:
    whole = Account()
    for account in accounts:
        for each in fields(account):
            mine, other = getattr(whole, each.name), getattr(account, each.name)
            if isinstance(mine, Counter):
                mine.update(other)
            else:
                setattr(whole, each.name, mine + other)
    counts: dict[str, Any] = {
        name: dict(value) if isinstance(value, Counter) else value
        for name, value in vars(whole).items()
    }
    counts["versions"] = dict(sorted(whole.versions.items()))
    counts["latencies"] = None
    if whole.latencies:
        points = np.percentile(whole.latencies, (50, 95, 99))
        counts["latencies"] = Latencies(*(float(point) for point in points))
    return ClientTally(**counts)


_BODY_BYTES = 2**20
"""Bytes of inputs in one upload; servers limit a request's body."""
_PART, _LONGEST_S = 0.5, 60.0
"""Share of a window, and most seconds, before a window at which its samples are uploaded."""
_POLL_S = 0.2


@dataclass(frozen=True, eq=False)
class Target:
    """A tenant with its model's input and its samples."""

    tenant: LiveTenant
    input: ModelInput
    questions: Questions
    run: str = field(default_factory=lambda: uuid4().hex[:8])
    """Part of every request id, which makes ids of different loads distinct."""

    def inputs(self, rows: Rows) -> Inputs:
        """The inputs of these samples, with pictures of the size that the model takes."""
        found, pixels = self.questions.samples.inputs[rows], self.input.pixels
        return found if pixels is None or found.ndim != 4 else resize_images(found, pixels)


def lead_s(window_s: float) -> float:
    """Seconds before a window at which its samples are uploaded. A server that waits for its first
    request estimates meanwhile."""
    return min(_LONGEST_S, _PART * window_s)


class Uploads:
    """Uploads the samples of every tenant, window by window."""

    def __init__(
        self,
        server: Server,
        pool: HttpPool,
        targets: Sequence[Target],
        share: float,
        windows: range,
    ) -> None:
        """`share`: of the samples that are labelled; `windows`: the server's numbers of them."""
        self._server, self._pool, self._targets = server, pool, targets
        self._share, self._windows = share, windows

    async def upload(self, window: int, ledger: Ledger, stop: asyncio.Event) -> None:
        """Upload the samples of one window and count them there."""
        for target in self._targets:
            since = None if window == self._windows[0] else window - 1
            rows = target.questions.training_rows(window, since)
            rows = rows[: round(self._share * len(rows))]
            for number, part in enumerate(_parts(target, rows)):
                if not stop.is_set():
                    await self._send(target, window, number, part, ledger)

    async def upload_later(
        self, begin_s: float, window_s: float, ledger: Ledger, stop: asyncio.Event
    ) -> None:
        """Upload the samples of all windows but the first. `begin_s`: when the first begins."""
        loop = asyncio.get_running_loop()
        for place, window in enumerate(self._windows[1:], start=1):
            due_s = begin_s + place * window_s - lead_s(window_s)
            while (left_s := due_s - loop.time()) > 0:
                await asyncio.sleep(min(left_s, _POLL_S))
            await self.upload(window, ledger, stop)

    async def _send(
        self, target: Target, window: int, number: int, rows: Rows, ledger: Ledger
    ) -> None:
        name = target.tenant.name
        body, headers = encode_samples(
            target.input,
            target.inputs(rows),
            target.questions.samples.labels[rows],
            f"{name}-{target.run}-samples-{window}-{number}",
        )
        headers |= self._server.headers(name)
        reply: Reply | None = None
        try:
            path = self._server.path(name, "/samples")
            reply = await self._pool.ask("POST", path, body, headers)
        except NoAnswerError:
            pass
        if reply is not None and reply.status in (404, 405):
            raise InputError(
                f"--labels-at: the server takes no samples of {name} "
                f"({error_in(reply.body) or reply.status}); use --labels-at feedback"
            )
        stored = reply is not None and reply.status == 200
        account = ledger.account(name, window)
        account.labels_stored += stored * len(rows)
        account.labels_lost += (not stored) * len(rows)


def _parts(target: Target, rows: Rows) -> Iterator[Rows]:
    """The rows in parts that fit into one request."""
    if not len(rows):
        return
    most = max(1, _BODY_BYTES // max(1, target.inputs(rows[:1]).nbytes))
    yield from np.split(rows, range(most, len(rows), most))
