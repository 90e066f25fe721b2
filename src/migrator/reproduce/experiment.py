"""An experiment: the runs it needs, its part of the page, its numbers, the file of finished runs.

An interrupted command continues from that file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

import migrator
from migrator.advise.trial import FixedLayout
from migrator.core.comparison import SeedMean, SeedValues
from migrator.core.errors import InputError, NotWrittenError
from migrator.core.problem import Charge, Kind, Task
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Decision, Observation, Sight
from migrator.records.outcome import RunOutcome
from migrator.report.page import Axis, Bars, Block, Note, Section, Series, Table, policy_paints
from migrator.simulation.compare import SimulationJob
from migrator.workload.traces.generator import KINDS, real_file
from migrator.workload.workloads import workloads

Outcomes = Mapping[SimulationJob, RunOutcome]
Figures = dict[str, Any]
"""An experiment's numbers, ready for JSON."""

PAPER, DIFFERS = "What the paper reports", "Why ours differs"
"""Titles of the notes beside every experiment's figures."""


@dataclass(frozen=True)
class Setting:
    """Traces, seeds, workloads and length of the runs."""

    data: Path | None = None
    """Folder with the real traces; None: traces are generated."""
    seeds: tuple[int, ...] = (0,)
    workloads: tuple[str, ...] = tuple(workloads())
    most_windows: int | None = None
    """Maximum number of windows of a run; None: what each experiment usually has."""

    def windows(self, drifting: int, usual: int | None = None) -> int:
        """Number of windows of a run whose data drifts in `drifting` windows."""
        return min(drifting, self.most_windows or usual or drifting)


@dataclass(frozen=True)
class Findings:
    """The content of an experiment's section."""

    paragraphs: tuple[str, ...]
    """The question, and how it is answered."""
    blocks: tuple[Block, ...]
    reported: tuple[str, ...]
    """What the paper reports."""
    differs: tuple[str, ...]
    """Why the results here differ from it."""


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper."""

    name: str
    """Name on the command line."""
    title: str
    jobs: Callable[[Setting], tuple[SimulationJob, ...]]
    """The runs it needs; experiments share equal runs."""
    findings: Callable[[Setting, Outcomes], Findings]
    figures: Callable[[Setting, Outcomes], Figures]
    """Its numbers, for JSON."""

    def section(self, setting: Setting, outcomes: Outcomes) -> Section:
        """Its section of the page."""
        found = self.findings(setting, outcomes)
        notes = Note(PAPER, found.reported), Note(DIFFERS, found.differs)
        return Section(self.title, self.name, found.paragraphs, (*found.blocks, *notes))


def percent(part: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * part:.1f}%"


def signed(part: float) -> str:
    """Format a relative change as a signed percentage."""
    return f"{points(part)}%"


def points(part: float, digits: int = 1) -> str:
    """Format a difference of two shares in percentage points."""
    rounded = round(100 * part, digits) + 0.0  # no minus before a zero
    return f"{rounded:+.{digits}f}".replace("-", "\u2212")


def cell(values: SeedValues) -> str:
    """Format the mean of a share over seeds in percent."""
    return f"{100 * values.mean:.1f}"


def interval(gain: SeedMean) -> str:
    """Format a relative change with its confidence interval if there is one."""
    width = "" if gain.half_width is None else f"\u00a0±\u00a0{100 * gain.half_width:.1f}"
    return f"{points(gain.mean)}{width}%"


def listed(names: Iterable[str], last: str = "and") -> str:
    """Join names for a sentence; "none" if there are none."""
    *most, final = list(names) or ["none"]
    return f"{', '.join(most)} {last} {final}" if most else final


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


def table(
    caption: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    highlights: Iterable[tuple[int, int]] = (),
    *,
    folded: bool = False,
) -> Table:
    """A table whose first column is text and whose other columns are numbers."""
    numeric = frozenset(range(1, len(headers)))
    cells = tuple(tuple(row) for row in rows)
    return Table(caption, tuple(headers), cells, numeric, frozenset(highlights), folded)


def bars(
    title: str,
    categories: Iterable[str],
    series: Mapping[str, Sequence[float]],
    x: Axis,
    y: Axis,
    policies: Sequence[str] | None = None,
) -> Bars:
    """Bars side by side: a value per series and category. `policies`: those of the series, whose
    colours they have."""
    paints = (None,) * len(series) if policies is None else policy_paints(policies)
    rows = tuple(
        Series(name, tuple(values), paint=paint)
        for (name, values), paint in zip(series.items(), paints, strict=True)
    )
    return Bars(title, tuple(categories), rows, x, y)


def serving_and_training(served: dict[str, int], trained: dict[str, int]) -> FixedLayout:
    """One instance for every model's inference and one for its retraining; values are GPCs."""
    tasks = [(Task(model, Kind.INFERENCE), gpcs) for model, gpcs in served.items()]
    tasks += [(Task(model, Kind.RETRAINING), gpcs) for model, gpcs in trained.items()]
    return FixedLayout("held-" + "-".join(str(gpcs) for gpcs in trained.values()), tuple(tasks))


class WithoutPass(Migrator):
    """The paper's plan without pre-initialization."""

    def decide(self, observation: Observation) -> Decision:
        """Plan the rest of the window."""
        decision = super().decide(observation)
        if decision.plan is None:
            return decision
        slots = (slot.instances for slot in decision.plan.slots)
        used = (tuple(instance for instance in slot if instance.task is not None) for slot in slots)
        return replace(decision, slots=tuple(used))


PAPER_WITHOUT_PASS = WithoutPass(
    "migrator-paper-no-pass",
    "the paper's plan without pre-initialization",
    Sight.FORECAST,
    Charge.PAPER,
)
PAPER_WITH_TRUTH = Migrator(
    "migrator-paper-truth",
    "the paper's plan and pass on the arrivals that will come",
    Sight.TRUTH,
    Charge.PAPER,
)


VERSION = 1
Key = tuple[str, int]
"""What is run, and the number or seed of the run."""


class _Data(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


_CODE = "code"
"""The setting that holds a digest of the code."""
_Result = TypeVar("_Result", bound=_Data)
_PACKAGES = ("core", "workload", "forecast", "planning", "policies", "control", "simulation")
_MODULES = (
    *("advise/trial.py", "reproduce/sources.py", "reproduce/map.py", "reproduce/traces.py"),
    *("reproduce/evaluation.py", "reproduce/overhead.py", "reproduce/experiment.py"),
    "records/outcome.py",
)
"""Code that the results depend on."""


class ResultsFile(Generic[_Result]):
    """Results of finished runs, those of earlier calls included."""

    def __init__(
        self,
        path: Path,
        descriptor: int,
        settings: Mapping[str, Any],
        finished: dict[Key, _Result],
    ) -> None:
        self._path, self._descriptor = path, descriptor
        self.settings, self.finished = settings, finished

    def add(self, key: Key, result: _Result) -> None:
        """Append a result; it is on the disk when this returns."""
        line = {"cell": key[0], "run": key[1], "result": asdict(result)}
        _write(self._path, self._descriptor, line)
        self.finished[key] = result


@contextmanager
def open_results(
    path: Path,
    kind: str,
    result: type[_Result],
    settings: Mapping[str, Any],
    expected: frozenset[Key] | None = None,
    *,
    to_read: bool = False,
) -> Iterator[ResultsFile[_Result]]:
    """Open a file of results of one kind; create it with these settings if it is missing.

    `expected`: the only keys that it may have; None: any. `to_read`: nothing is written, so that
    another process may write the file, and results of other code will do. InputError if it has
    other settings, is damaged, or another process writes it. A line that a killed process left
    unfinished at the end is removed.
    """
    header: dict[str, Any] = {kind: VERSION, "settings": dict(settings)}
    descriptor = _opened_to_read(path) if to_read else _opened(path)
    try:
        lines = _finished_lines(descriptor, kind, is_cut=not to_read)
        if lines:
            _check_header(path, lines[0], kind, header, (_CODE,) if to_read else ())
        elif not to_read:
            _write(path, descriptor, header)
        made_with = json.loads(lines[0])["settings"] if lines else header["settings"]
        finished = _read(path, lines[1:], TypeAdapter(result), expected)
        yield ResultsFile(path, descriptor, made_with, finished)
    finally:
        os.close(descriptor)


def code_digest() -> str:
    """A digest of the code and the packaged data that results depend on."""
    root = Path(migrator.__file__).parent
    digest = hashlib.sha256()
    files = [
        path
        for name in _PACKAGES
        for path in (root / name).rglob("*")
        if path.suffix in (".py", ".json")
    ]
    for file in [*sorted(files), *(root / module for module in _MODULES)]:
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def traces_digest(data: Path | None) -> str:
    """A digest of the real traces in the folder; "" if there are none."""
    found = {} if data is None else {kind: real_file(kind, data) for kind in sorted(KINDS)}
    digests = [
        f"{kind} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for kind, path in found.items()
        if path is not None
    ]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16] if digests else ""


def _opened(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InputError(
            f"--results: cannot write {path} ({error.strerror}); name another file"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise InputError(
            f"--results: another process writes {path}; wait for it or name another file"
        ) from error
    return descriptor


def _opened_to_read(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(
            f"--results: cannot read {path} ({error.strerror}); name another file"
        ) from error


def _finished_lines(descriptor: int, kind: str, *, is_cut: bool) -> list[bytes]:
    """The complete lines; `is_cut`: an unfinished last one is removed from the file."""
    size = os.fstat(descriptor).st_size
    content = os.pread(descriptor, size, 0)
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < size and (whole or content.startswith(b'{"%s"' % kind.encode())):
        if is_cut:
            os.ftruncate(descriptor, len(whole))
        return whole.splitlines()
    return content.splitlines()


def _read(
    path: Path,
    lines: list[bytes],
    results: TypeAdapter[_Result],
    expected: frozenset[Key] | None,
) -> dict[Key, _Result]:
    finished: dict[Key, _Result] = {}
    for number, line in enumerate(lines, start=2):
        try:
            entry = json.loads(line)
            key = (str(entry["cell"]), int(entry["run"]))
            result = results.validate_python(entry["result"])
        except (ValueError, KeyError, TypeError, ValidationError, RecursionError) as error:
            raise _damaged(path, number) from error
        if key in finished or (expected is not None and key not in expected):
            raise _damaged(path, number)
        finished[key] = result
    return finished


def _check_header(
    path: Path, line: bytes, kind: str, header: Mapping[str, Any], ignored: Collection[str]
) -> None:
    try:
        found = json.loads(line)
        is_ours = isinstance(found, dict) and isinstance(found["settings"], dict)
    except (ValueError, KeyError, RecursionError):
        is_ours = False
    if not is_ours or found.get(kind) != VERSION:
        raise InputError(
            f"--results: {path} is not a results file of this version; name another file"
        )
    wanted = json.loads(json.dumps(header["settings"]))
    other = [
        each
        for each in wanted
        if each not in ignored and found["settings"].get(each) != wanted[each]
    ]
    if other or found["settings"].keys() != wanted.keys():
        raise InputError(
            f"--results: {path} has results of other settings ({', '.join(other) or 'more keys'}); "
            "delete it or name another file"
        )


def _damaged(path: Path, line: int) -> InputError:
    return InputError(f"--results: line {line} of {path} is damaged; delete the line or the file")


def _write(path: Path, descriptor: int, entry: object) -> None:
    line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
    begin = os.fstat(descriptor).st_size
    try:
        written = os.write(descriptor, line)
        if written < len(line):
            os.ftruncate(descriptor, begin)
            raise OSError(0, "no space left")
        os.fsync(descriptor)
    except OSError as error:
        raise NotWrittenError(
            f"--results: cannot write {path} ({error.strerror}); free some space and run again"
        ) from error
