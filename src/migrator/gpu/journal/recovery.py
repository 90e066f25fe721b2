"""Crash recovery: make the journal agree with the GPU, and settle an unfinished layout change.

Runs at the start of every operation that changes a GPU. It destroys only unused instances that this
owner created according to the journal. Unknown instances are reported and left alone.

Two cases cannot be distinguished: an instance that another program created at the same place after
ours was gone, with the same number and UUID; and one that another program created where we had
written an intent and were killed before we acted on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from migrator.core.errors import MigratorError
from migrator.core.placement import Place
from migrator.gpu.drivers.base import GpuInstance
from migrator.gpu.journal.entries import (
    EntryState,
    JournalEntry,
    LayoutChange,
    find_instance,
    live_creates,
    match_creates,
)
from migrator.gpu.journal.journaled_driver import JournaledDriver
from migrator.gpu.partition.layout import Layout
from migrator.gpu.partition.steps import BlockedError, Op, Step


@dataclass(frozen=True)
class RecoveryReport:
    """Findings and actions of a recovery."""

    adopted: tuple[GpuInstance, ...] = ()
    """Existing instances of this owner."""
    finished: tuple[Step, ...] = ()
    """Steps that were begun before and are complete, including those that finished a change."""
    undone: tuple[Step, ...] = ()
    """Steps that were begun before and are undone, including those that undid a change."""
    destroyed: tuple[Place, ...] = ()
    forgotten: tuple[Place, ...] = ()
    """Places in the journal without an instance. Another program or a reboot removed it."""
    foreign: tuple[GpuInstance, ...] = ()
    """Instances that are not this owner's. They are never touched."""
    superseded: tuple[LayoutChange, ...] = ()
    """Changes that were begun before and abandoned for the new change."""
    unsettled: tuple[str, ...] = ()
    """Sentences about what could not be settled. If the GPU failed, the next recovery tries again.
    """

    @property
    def acted(self) -> bool:
        """Whether there is anything to report."""
        usual = ("adopted", "foreign")
        return any(getattr(self, each.name) for each in fields(self) if each.name not in usual)


@dataclass
class _Findings:
    finished: list[Step] = field(default_factory=list)
    undone: list[Step] = field(default_factory=list)
    destroyed: list[Place] = field(default_factory=list)
    forgotten: list[Place] = field(default_factory=list)
    superseded: list[LayoutChange] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)


def recover(driver: JournaledDriver, *, back_first: bool = False) -> RecoveryReport:
    """Settle unfinished operations. `back_first`: finish a change only if it cannot be undone."""
    findings = _Findings()
    _settle_entries(driver, findings, touch_gpu=True)
    changes = driver.unfinished()
    for change in changes[:-1]:
        driver.journal.end_change(change, EntryState.SUPERSEDED)
        findings.superseded.append(change)
    for change in changes[-1:]:
        _settle_change(driver, change, findings, back_first)
    return _report(driver, findings)


def settle_journal(driver: JournaledDriver) -> RecoveryReport:
    """Make the journal agree with the GPU, without touching the GPU.

    Incomplete instances and an interrupted change are left to the caller, which plans from there.
    """
    findings = _Findings()
    _settle_entries(driver, findings, touch_gpu=False)
    findings.superseded += driver.unfinished()
    return _report(driver, findings)


def describe_places(places: tuple[Place, ...]) -> str:
    """Places for use in a sentence."""
    return ", ".join(map(str, sorted(places))) or "no instances"


def _report(driver: JournaledDriver, findings: _Findings) -> RecoveryReport:
    driver.journal.shorten(driver.gpu)
    ours = driver.ours()
    return RecoveryReport(
        adopted=tuple(instance for instance, _ in ours.values()),
        foreign=tuple(each for each in driver.present() if each.place not in ours),
        **{each.name: tuple(getattr(findings, each.name)) for each in fields(findings)},
    )


def _settle_entries(driver: JournaledDriver, findings: _Findings, *, touch_gpu: bool) -> None:
    """Settle all unfinished entries.

    Includes entries of other owners without an instance, because an identical new instance of ours
    would match them.
    """
    findings.forgotten += driver.journal.forget_other_boots(driver.gpu)
    entries = driver.journal.entries(driver.gpu)
    living = {each.generation for each in live_creates(entries)}
    for entry in (each for each in entries if each.state is EntryState.BEGUN):
        if entry.generation not in living:
            # Another entry ended that instance. One that exists at the place is a later instance.
            driver.journal.end(entry, EntryState.UNDONE)
            continue
        instance = find_instance(driver.present(), entry)
        half_made = instance is not None and instance.uuid is None
        if (instance and not driver.owns(entry)) or (half_made and not touch_gpu):
            continue
        try:
            if entry.intent is Op.CREATE:
                _settle_create(driver, entry, instance, findings)
            else:
                _settle_destroy(driver, entry, instance, findings, touch_gpu)
        except MigratorError as error:
            findings.unsettled.append(f"{entry.step} was begun and is not finished: {error}")
    _forget_missing(driver, findings)


def _settle_create(
    driver: JournaledDriver,
    entry: JournalEntry,
    instance: GpuInstance | None,
    findings: _Findings,
) -> None:
    if instance and instance.uuid:
        driver.journal.end(entry, EntryState.DONE, instance)
        findings.finished.append(entry.step)
        return
    if instance:
        driver.remove(instance)
        findings.destroyed.append(entry.place)
    driver.journal.end(entry, EntryState.UNDONE)
    findings.undone.append(entry.step)


def _settle_destroy(
    driver: JournaledDriver,
    entry: JournalEntry,
    instance: GpuInstance | None,
    findings: _Findings,
    touch_gpu: bool,
) -> None:
    # A complete instance inside a change stays, because undoing the change may need it.
    kept = instance and (instance.holders or not touch_gpu or (entry.change and instance.uuid))
    if kept:
        driver.journal.end(entry, EntryState.UNDONE)
        findings.undone.append(entry.step)
        return
    if instance:
        driver.remove(instance)
        findings.destroyed.append(entry.place)
    driver.journal.end(entry, EntryState.DONE)
    findings.finished.append(entry.step)


def _forget_missing(driver: JournaledDriver, findings: _Findings) -> None:
    """Forget missing instances of all owners. A later instance at the same place is another one."""
    creates = live_creates(driver.journal.entries(driver.gpu))
    there = {create.id for _, create in match_creates(driver.present(), creates).values()}
    for create in creates:
        if create.id not in there and create.state is EntryState.DONE:
            driver.journal.end(create, EntryState.FORGOTTEN)
            findings.forgotten.append(create.place)


def _settle_change(
    driver: JournaledDriver, change: LayoutChange, findings: _Findings, back_first: bool
) -> None:
    """Undo or finish the change, whichever is possible. After a crash, the shorter way first."""
    back, forward = (EntryState.UNDONE, change.before), (EntryState.DONE, change.wanted)
    forward_is_shorter = _distance(driver, change.wanted) < _distance(driver, change.before)
    ways = (forward, back) if forward_is_shorter and not back_first else (back, forward)
    problems: list[MigratorError] = []
    for state, places in ways:
        try:
            steps = driver.steps_to(Layout(places))
            driver.run(steps, change)
        except MigratorError as error:
            problems.append(error)
            continue
        driver.journal.end_change(change, state)
        (findings.finished if state is EntryState.DONE else findings.undone).extend(steps)
        findings.destroyed += [each.place for each in steps if each.op is Op.DESTROY]
        return
    if all(isinstance(each, BlockedError) for each in problems):
        # Other programs have taken the slices: a later attempt would be unexpected.
        driver.journal.end_change(change, EntryState.FORGOTTEN)
    findings.unsettled.append(
        f"a change to {describe_places(change.wanted)} could neither be finished nor undone to "
        f"{describe_places(change.before)}: {'; '.join(dict.fromkeys(map(str, problems)))}"
    )


def _distance(driver: JournaledDriver, places: tuple[Place, ...]) -> float:
    try:
        return len(driver.steps_to(Layout(places)))
    except MigratorError:
        return float("inf")
