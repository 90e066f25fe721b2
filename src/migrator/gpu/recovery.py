"""After a crash: the journal and the board brought to agree, and an unfinished change settled.

Runs at the start of everything that changes a GPU. It destroys only what the journal shows we
created and nobody uses; what the journal does not know is told and left alone. Two things cannot
be told apart: an equal instance that somebody else made at the same place after ours had gone,
where the board gave it the same number and UUID; and one that somebody else made where we had
written that we would and were killed before we asked for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from migrator.core.errors import MigratorError
from migrator.gpu.change import BlockedError, Op, Step
from migrator.gpu.deed import Change, Deed, State, alive
from migrator.gpu.driver import GpuInstance, Place
from migrator.gpu.hand import Hand, find, matched
from migrator.gpu.layout import Layout


@dataclass(frozen=True)
class Recovered:
    """What a recovery found and did."""

    adopted: tuple[GpuInstance, ...] = ()
    """Ours and there."""
    finished: tuple[Step, ...] = ()
    """Begun before, complete now; with those that took a change forward."""
    undone: tuple[Step, ...] = ()
    """Begun before, taken back now; with those that took a change back."""
    destroyed: tuple[Place, ...] = ()
    forgotten: tuple[Place, ...] = ()
    """In the journal and not on the board: destroyed by somebody else, or by a reboot."""
    foreign: tuple[GpuInstance, ...] = ()
    """Not this owner's; never touched."""
    superseded: tuple[Change, ...] = ()
    """Begun before and given up for what was asked now."""
    unsettled: tuple[str, ...] = ()
    """What could not be settled, in sentences; where the GPU failed, the next one tries again."""

    @property
    def acted(self) -> bool:
        """Whether there was anything to tell."""
        return any(getattr(self, each.name) for each in fields(self) if each.name not in _USUAL)


_USUAL = ("adopted", "foreign")


@dataclass
class _Findings:
    finished: list[Step] = field(default_factory=list)
    undone: list[Step] = field(default_factory=list)
    destroyed: list[Place] = field(default_factory=list)
    forgotten: list[Place] = field(default_factory=list)
    superseded: list[Change] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)


def recover(hand: Hand, *, back_first: bool = False) -> Recovered:
    """Settles what is unfinished; `back_first`: a change is only taken forward if it must be."""
    findings = _Findings()
    findings.forgotten += hand.journal.forget_other_boots(hand.gpu)
    _settle_deeds(hand, findings, touching=True)
    _forget_the_gone(hand, findings)
    changes = tuple(filter(hand.owns, hand.journal.unfinished(hand.gpu)))
    for change in changes[:-1]:
        hand.journal.end_change(change, State.SUPERSEDED)
        findings.superseded.append(change)
    for change in changes[-1:]:
        _settle_change(hand, change, findings, back_first)
    return _found(hand, findings)


def taken_up(hand: Hand) -> Recovered:
    """Brings the journal to what the board shows, touching nothing there.

    Half an instance and a change that was cut off are left to whoever plans from here.
    """
    findings = _Findings()
    findings.forgotten += hand.journal.forget_other_boots(hand.gpu)
    _settle_deeds(hand, findings, touching=False)
    _forget_the_gone(hand, findings)
    findings.superseded += filter(hand.owns, hand.journal.unfinished(hand.gpu))
    return _found(hand, findings)


def _found(hand: Hand, findings: _Findings) -> Recovered:
    hand.journal.shorten(hand.gpu)
    ours = hand.ours()
    return Recovered(
        adopted=tuple(instance for instance, _ in ours.values()),
        finished=tuple(findings.finished),
        undone=tuple(findings.undone),
        destroyed=tuple(findings.destroyed),
        forgotten=tuple(findings.forgotten),
        foreign=tuple(each for each in hand.present() if each.place not in ours),
        superseded=tuple(findings.superseded),
        unsettled=tuple(findings.unsettled),
    )


def _settle_deeds(hand: Hand, findings: _Findings, *, touching: bool) -> None:
    """Other owners' too where nothing is there: else an equal one of ours would pass as theirs."""
    deeds = hand.journal.deeds(hand.gpu)
    living = {each.generation for each in alive(deeds)}
    for deed in (each for each in deeds if each.state is State.BEGUN):
        if deed.generation not in living:
            # another deed has ended that life; what is there now is a later one
            hand.journal.end(deed, State.UNDONE)
            continue
        instance = find(hand.present(), deed)
        half = instance is not None and instance.uuid is None
        if (instance and not hand.owns(deed)) or (half and not touching):
            continue
        try:
            if deed.intent is Op.CREATE:
                _settle_create(hand, deed, instance, findings)
            else:
                _settle_destroy(hand, deed, instance, findings, touching)
        except MigratorError as error:
            findings.unsettled.append(f"{deed.step} was begun and is not finished: {error}")


def _settle_create(
    hand: Hand, deed: Deed, instance: GpuInstance | None, findings: _Findings
) -> None:
    if instance and instance.uuid:
        hand.journal.end(deed, State.DONE, instance)
        findings.finished.append(deed.step)
        return
    if instance:
        hand.remove(instance)
        findings.destroyed.append(deed.place)
    hand.journal.end(deed, State.UNDONE)
    findings.undone.append(deed.step)


def _settle_destroy(
    hand: Hand, deed: Deed, instance: GpuInstance | None, findings: _Findings, touching: bool
) -> None:
    # a whole instance inside a change stays for now: the change may go back to it
    kept = instance and (instance.holders or not touching or (deed.change and instance.uuid))
    if kept:
        hand.journal.end(deed, State.UNDONE)
        findings.undone.append(deed.step)
        return
    if instance:
        hand.remove(instance)
        findings.destroyed.append(deed.place)
    hand.journal.end(deed, State.DONE)
    findings.finished.append(deed.step)


def _forget_the_gone(hand: Hand, findings: _Findings) -> None:
    """Whoever's they were: what comes to their places later is somebody else's."""
    known = alive(hand.journal.deeds(hand.gpu))
    there = {create.id for _, create in matched(hand.present(), known).values()}
    for create in known:
        if create.id not in there and create.state is State.DONE:
            hand.journal.end(create, State.FORGOTTEN)
            findings.forgotten.append(create.place)


def _settle_change(hand: Hand, change: Change, findings: _Findings, back_first: bool) -> None:
    """Back or forward, whichever is possible; after a crash the shorter way first."""
    back, forward = (State.UNDONE, change.before), (State.DONE, change.wanted)
    shorter_forward = _distance(hand, change.wanted) < _distance(hand, change.before)
    ways = (forward, back) if shorter_forward and not back_first else (back, forward)
    problems: list[MigratorError] = []
    for state, places in ways:
        try:
            steps = hand.steps_to(Layout(places))
            hand.walk(steps, change)
        except MigratorError as error:
            problems.append(error)
            continue
        hand.journal.end_change(change, state)
        (findings.finished if state is State.DONE else findings.undone).extend(steps)
        findings.destroyed += [each.place for each in steps if each.op is Op.DESTROY]
        return
    if all(isinstance(each, BlockedError) for each in problems):
        # others have taken the room: to try again some day would surprise them, and us
        hand.journal.end_change(change, State.FORGOTTEN)
    findings.unsettled.append(
        f"a change to {in_words(change.wanted)} could neither be finished nor taken back to "
        f"{in_words(change.before)}: {'; '.join(dict.fromkeys(map(str, problems)))}"
    )


def _distance(hand: Hand, places: tuple[Place, ...]) -> float:
    try:
        return len(hand.steps_to(Layout(places)))
    except MigratorError:
        return float("inf")


def in_words(places: tuple[Place, ...]) -> str:
    """Places as words."""
    return ", ".join(map(str, sorted(places))) or "no instances"
