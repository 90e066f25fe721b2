"""`migrator load`: a scenario's requests sent to a running server, and what came of them.

Open loop: every request is sent when it is due, whatever became of those before it, and its
latency counts from that moment. The same seed gives the requests that the simulator serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from migrator.core.errors import InputError
from migrator.core.load_outcome import LoadOutcome
from migrator.learn.benchmarks.benchmark import Origin
from migrator.learn.registry import benchmark
from migrator.load.books import Books
from migrator.load.http import HttpPool
from migrator.load.messages import Taken
from migrator.load.samples import Questions
from migrator.load.schedule import Schedule, schedule
from migrator.load.sender import Asked, Sender
from migrator.load.server import Server, ServerWindow
from migrator.workload.live import LiveScenario, LiveTenant

CONNECTIONS, LABEL_CONNECTIONS = 512, 64
_AT_ONCE = 0.02
"""The part of a window that may have passed for a run to begin in it unasked."""


@dataclass(frozen=True)
class LoadSettings:
    """How a load is sent."""

    url: str
    tenants: tuple[str, ...] = ()
    """Those whose requests are sent; empty: all."""
    windows: int = 1
    speed: float = 1.0
    """Seconds of the traces in one second."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """By tenant."""
    labels: float = 1.0
    """The part of the answers after which the true label is sent back."""
    now: bool = False
    """Begin in the middle of the server's window instead of waiting for the next."""
    timeout_s: float = 10.0
    """How long an answer is waited for."""
    patience_s: float = 10.0
    """How long the server may answer nothing at all."""


@dataclass(frozen=True)
class Standing:
    """How a load stands, for whoever watches."""

    waits_s: float
    """Until its first window; 0: it has begun."""
    passed_s: float
    whole_s: float
    window: int
    """As the server counts."""
    sent: int
    goodput: int


def questions_of(tenant: LiveTenant) -> Questions:
    """A tenant's labelled samples; InputError where nobody says where they come from."""
    if tenant.benchmark is None:
        raise InputError(
            f"{tenant.name}: where its labelled samples come from is not said; give it "
            "live.benchmark in the scenario"
        )
    found = benchmark(tenant.benchmark)
    return Questions(found, found.load(Origin(seed=tenant.seed)), tenant.seed)


def chosen(live: LiveScenario, names: Sequence[str]) -> list[int]:
    """The positions of the tenants asked for; InputError for a name that is none."""
    known = [each.name for each in live.tenants]
    unknown = [each for each in names if each not in known]
    if unknown:
        raise InputError(
            f"--tenant: {live.scenario.name} has no {unknown[0][:60]!r}; use {', '.join(known)}"
        )
    return [known.index(each) for each in dict.fromkeys(names)] or list(range(len(known)))


async def load(
    live: LiveScenario,
    settings: LoadSettings,
    watch: Callable[[Standing], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> LoadOutcome:
    """Send everything and count what comes back; `stop` ends it early, with what is known then."""
    indices = chosen(live, settings.tenants)
    tenants = [live.tenants[each] for each in indices]
    asked = [questions_of(each) for each in tenants]
    pool = HttpPool(settings.url, most=CONNECTIONS, timeout_s=settings.timeout_s)
    labels = HttpPool(settings.url, most=LABEL_CONNECTIONS, timeout_s=settings.timeout_s)
    server = Server(settings.url, pool, settings.tokens)
    try:
        takes = await _met(server, tenants, asked)
        first, begin_s, skipped_s = _begin(await server.window(), live, settings)
        due = schedule(
            live.scenario, indices, asked, first, settings.windows, settings.speed
        ).since(skipped_s)
        books = _books(live, tenants, first, settings)
        sender = Sender(
            server,
            labels if settings.labels else None,
            settings.labels,
            [Asked(*each, uuid4().hex[:8]) for each in zip(tenants, takes, asked, strict=True)],
            books,
            begin_s,
            first,
        )
        ended = await _sent(sender, due, settings, watch, stop or asyncio.Event(), live)
    finally:
        pool.close()
        labels.close()
    return _outcome(live, settings, books, ended)


async def _met(
    server: Server, tenants: Sequence[LiveTenant], asked: Sequence[Questions]
) -> list[Taken]:
    """What every tenant's model takes, once the server can answer for all of them."""
    takes = []
    for tenant, questions in zip(tenants, asked, strict=True):
        taken = await server.taken(tenant.name)
        sample = questions.samples.inputs[0]
        if not taken.fits(sample):
            raise InputError(
                f"{tenant.name}: its model takes {taken.datatype} of shape {list(taken.shape)}, "
                f"and samples of {tenant.benchmark} are {sample.dtype.name} of shape "
                f"{list(sample.shape)}; correct live.pixels or live.benchmark"
            )
        takes.append(taken)
    for tenant in tenants:
        await server.ready(tenant.name)
    return takes


def _begin(
    now: ServerWindow | None, live: LiveScenario, settings: LoadSettings
) -> tuple[int, float, float]:
    """The server's number of the first window, when it begins, and how much of it is left out."""
    here_s = asyncio.get_running_loop().time()
    if now is None:
        return 0, here_s, 0.0
    window_s = live.scenario.window_s
    if abs(now.window_s - window_s) > 1e-6:
        raise InputError(
            f"--url: the server's windows take {now.window_s:g} s and those of "
            f"{live.scenario.name} {window_s:g} s; name the scenario that it serves"
        )
    passed_s = max(0.0, here_s - now.began_s)
    if settings.now or passed_s < _AT_ONCE * window_s:
        return now.number, now.began_s, passed_s
    missed = int(passed_s // window_s) + 1
    return now.number + missed, now.began_s + missed * window_s, 0.0


def _books(
    live: LiveScenario, tenants: Sequence[LiveTenant], first: int, settings: LoadSettings
) -> Books:
    seconds = int(-(-settings.windows * live.scenario.window_s // 1))
    windows = range(first, first + settings.windows)
    return Books([each.name for each in tenants], windows, seconds)


async def _sent(
    sender: Sender,
    due: Schedule,
    settings: LoadSettings,
    watch: Callable[[Standing], None],
    stop: asyncio.Event,
    live: LiveScenario,
) -> str | None:
    """Send all of it; why it ended early, or None."""
    watching = asyncio.create_task(_watched(sender, settings, watch, stop, live))
    try:
        whole = await sender.send(due, stop)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    if whole:
        return None
    silent = sender.silent_s() > settings.patience_s
    return f"the server answered nothing for {settings.patience_s:g} s" if silent else "interrupted"


async def _watched(
    sender: Sender,
    settings: LoadSettings,
    watch: Callable[[Standing], None],
    stop: asyncio.Event,
    live: LiveScenario,
) -> None:
    """Tell how it stands, several times a second; end it where the server has gone."""
    loop = asyncio.get_running_loop()
    whole_s = settings.windows * live.scenario.window_s
    while not stop.is_set():
        passed_s = loop.time() - sender.begin_s
        into = min(max(passed_s, 0.0), whole_s)
        number = sender.first + min(int(into / live.scenario.window_s), settings.windows - 1)
        watch(
            Standing(max(0.0, -passed_s), into, whole_s, number, sender.count, sender.books.right)
        )
        if sender.silent_s() > settings.patience_s:
            stop.set()
        await asyncio.sleep(0.2)


def _outcome(
    live: LiveScenario, settings: LoadSettings, books: Books, ended: str | None
) -> LoadOutcome:
    return LoadOutcome(
        scenario=live.scenario.name,
        url=settings.url,
        seed=live.scenario.seed,
        speed=settings.speed,
        window_s=live.scenario.window_s,
        windows=books.windows(),
        tenants=books.tallies(),
        whole=books.whole(),
        seconds=books.seconds(),
        lag_p99_s=books.lag_p99_s(),
        ended=ended,
    )
