"""The life of a retraining: every event in every phase, and who may change a tenant's state."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import TypeGuard, get_args

import pytest

from migrator.control.events import (
    NothingToLearn,
    RetrainingEvent,
    RetrainingPlanned,
    RetrainingWithdrawn,
    SamplesMissing,
    TrainingCompleted,
    TrainingInterrupted,
    TrainingProgressed,
    TrainingStarted,
)
from migrator.control.expected_accuracy import ExpectedAccuracy
from migrator.control.retraining import Phase, TenantRetraining, UnexpectedEventError, apply_event
from migrator.control.tenant_state import TenantState
from migrator.control.training_duration import TrainingDuration
from migrator.control.value_after_window import ValueAfterWindow
from migrator.core.problem import Instance
from migrator.core.profiles import Curve
from migrator.policies.policy import RetrainingChoice

SOURCE = Path(__file__).parents[2] / "src" / "migrator"
SECONDS = Curve(((16.0, 10.0),))
PLACE = Instance(0, 2)
NEXT = TenantRetraining(4, SECONDS, 1.0, 0.8)
"""What a later window plans."""

EVENTS: tuple[RetrainingEvent, ...] = (
    RetrainingPlanned(NEXT),
    NothingToLearn(),
    TrainingStarted(PLACE, 2),
    TrainingProgressed(0.5),
    TrainingInterrupted(),
    TrainingCompleted(),
    SamplesMissing(),
    RetrainingWithdrawn(),
)
NONE, WAITING, RUNNING, DONE, CANCELLED = Phase
ALLOWED = {
    (NONE, RetrainingPlanned): WAITING,
    (NONE, NothingToLearn): NONE,
    (NONE, RetrainingWithdrawn): NONE,
    (WAITING, RetrainingPlanned): WAITING,
    (WAITING, NothingToLearn): NONE,
    (WAITING, TrainingStarted): RUNNING,
    (WAITING, TrainingProgressed): WAITING,
    (WAITING, RetrainingWithdrawn): NONE,
    (RUNNING, RetrainingPlanned): RUNNING,
    (RUNNING, NothingToLearn): RUNNING,
    (RUNNING, TrainingProgressed): RUNNING,
    (RUNNING, TrainingInterrupted): WAITING,
    (RUNNING, TrainingCompleted): DONE,
    (RUNNING, SamplesMissing): DONE,
    (RUNNING, RetrainingWithdrawn): CANCELLED,
    (DONE, RetrainingPlanned): WAITING,
    (DONE, NothingToLearn): NONE,
    (DONE, RetrainingWithdrawn): NONE,
    (CANCELLED, RetrainingPlanned): CANCELLED,
    (CANCELLED, NothingToLearn): CANCELLED,
    (CANCELLED, TrainingProgressed): CANCELLED,
    (CANCELLED, TrainingInterrupted): NONE,
    (CANCELLED, TrainingCompleted): NONE,
    (CANCELLED, SamplesMissing): NONE,
    (CANCELLED, RetrainingWithdrawn): CANCELLED,
}
"""Every event that a phase allows, with the phase after it."""


def in_phase(phase: Phase) -> TenantRetraining | None:
    if phase is NONE:
        return None
    on = PLACE if phase is RUNNING else None
    return TenantRetraining(3, SECONDS, 1.0, 0.9, phase, 0.25, on)


def phase_of(retraining: TenantRetraining | None) -> Phase:
    return NONE if retraining is None else retraining.phase


def test_the_events_are_all_there_are() -> None:
    assert [type(event) for event in EVENTS] == list(get_args(RetrainingEvent))


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, EVENTS)))
def test_every_event_in_every_phase_changes_it_or_is_refused(
    phase: Phase, event: RetrainingEvent
) -> None:
    after = ALLOWED.get((phase, type(event)))
    if after is None:
        message = f"{type(event).__name__} while the retraining is {phase}"
        with pytest.raises(UnexpectedEventError, match=message):
            apply_event(in_phase(phase), event)
        return
    assert phase_of(apply_event(in_phase(phase), event)) is after


@pytest.mark.parametrize("phase", [NONE, WAITING, DONE])
def test_a_window_with_labels_replaces_a_retraining_that_does_not_run(phase: Phase) -> None:
    assert apply_event(in_phase(phase), RetrainingPlanned(NEXT)) == NEXT


@pytest.mark.parametrize("phase", [RUNNING, CANCELLED])
@pytest.mark.parametrize("event", [RetrainingPlanned(NEXT), NothingToLearn()])
def test_one_whose_process_runs_outlasts_its_window(phase: Phase, event: RetrainingEvent) -> None:
    assert apply_event(in_phase(phase), event) == in_phase(phase)


def test_a_training_that_continues_elsewhere_keeps_its_progress() -> None:
    events = (TrainingStarted(PLACE, 2), TrainingProgressed(0.5), TrainingInterrupted())
    retraining: TenantRetraining | None = NEXT
    for event in events:
        retraining = apply_event(retraining, event)
    assert retraining is not None
    assert (retraining.phase, retraining.progress, retraining.on) == (WAITING, 0.5, None)
    elsewhere = Instance(4, 3)
    retraining = apply_event(retraining, TrainingStarted(elsewhere, 1))
    assert retraining is not None
    assert (retraining.progress, retraining.on, retraining.since) == (0.5, elsewhere, 1)


def state_attributes() -> set[str]:
    """The names of everything that a tenant's state consists of. Retrainings are frozen."""
    modules = [SOURCE / "control" / name for name in ("tenant_state.py", "served_model.py")]
    trees = [ast.parse(module.read_text(encoding="utf-8")) for module in modules]
    parts = (TrainingDuration, ExpectedAccuracy, ValueAfterWindow)
    properties = {name for name, value in vars(TenantState).items() if isinstance(value, property)}
    names = {
        *(node.attr for tree in trees for node in ast.walk(tree) if is_write(node)),
        *(field.name for part in parts for field in fields(part)),
        *properties,
    }
    return names - {"name", "window"}  # names of many other things


def is_write(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)


def packages_above_control() -> Iterator[Path]:
    """The packages that can hold a tenant's state: those that import `control`."""
    for package in sorted(SOURCE.iterdir()):
        sources = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
        if package.name != "control" and any("from migrator.control" in text for text in sources):
            yield package


def writes(path: Path, names: set[str]) -> Iterator[str]:
    """Where a module sets an attribute with one of these names, of another object than itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    states = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "TenantState" for base in node.bases)
    ]
    own = {id(node) for state in states for node in ast.walk(state)}
    for node in ast.walk(tree):
        if is_write(node) and node.attr in names:
            is_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_self or id(node) in own:
                yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_only_control_changes_the_state_of_a_tenant() -> None:
    """The others send events and report measurements."""
    packages, names = list(packages_above_control()), state_attributes()
    assert {"live", "simulation"} <= {package.name for package in packages}
    assert {"accuracy", "drained", "retraining", "slower", "estimate", "_fruitless"} <= names
    paths = [path for package in packages for path in package.rglob("*.py")]
    assert not [write for path in paths for write in writes(path, names)]


@pytest.mark.parametrize(
    "text",
    [
        "def f(tenant): tenant.accuracy = 1.0",
        "def f(tenants): tenants['a'].drained = True",
        "def f(tenant): tenant.duration.slower += 0.5",
        "class C(TenantState):\n    def f(self): self._since = 3",
    ],
)
def test_such_a_change_is_found(text: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    names = {"accuracy", "drained", "slower", "_since"}
    assert len(list(writes(path, names))) == 1


def test_a_waiting_retraining_takes_another_configuration_and_a_running_one_keeps_its_own() -> None:
    half = RetrainingChoice("half", 0.7, SECONDS.scaled(0.5))
    whole = TenantRetraining(4, SECONDS, 2.0, 0.8, configuration="all", others=(half,))
    chosen = whole.chosen("half")
    assert (chosen.expected, chosen.planned_s.at(16)) == (0.7, 10.0)
    assert [choice.seconds.at(16) for choice in chosen.other_choices] == [20.0]
    assert chosen.chosen("all") == whole
    assert whole.chosen("unknown") == whole
    running = apply_event(chosen, TrainingStarted(PLACE, 2))
    assert running is not None
    assert running.chosen("all") == running
