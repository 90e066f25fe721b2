from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from migrator.core.catalogue import Place, board
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.drivers.base import (
    GpuInstance,
    HalfMadeError,
    InUseError,
    NotPermittedError,
    RefusedError,
    TransientError,
)
from migrator.gpu.drivers.virtual_board import EmulatedDriver, register_use
from migrator.gpu.journal import EntryState, Journal
from migrator.gpu.layout import BlockedError, Layout
from migrator.gpu.partitioner import Partitioner

LEFT, RIGHT, WHOLE = Place(0, "4g.20gb"), Place(4, "3g.20gb"), Place(0, "7g.40gb")
ONE, SIX = Place(1, "1g.5gb"), Place(6, "1g.5gb")


class Scripted(EmulatedDriver):
    """An emulated GPU where something else can happen first."""

    def __init__(self, folder: Path, boot: str = "boot-1") -> None:
        super().__init__(folder, 0, board("A100-40GB"), pace=0.0, boot=boot)
        self.virtual = self._virtual
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda _: None

    def create(self, place: Place) -> GpuInstance:
        self._first(f"create {place}")
        return super().create(place)

    def destroy(self, instance: GpuInstance) -> None:
        self._first(f"destroy {instance.place}")
        super().destroy(instance)

    def places(self) -> list[Place]:
        return [instance.place for instance in self.instances()]

    def foreign(self, place: Place, whole: bool = True) -> GpuInstance:
        half = self.virtual.create_gpu_instance(place)
        return self.virtual.create_compute_instance(half) if whole else half

    def at(self, place: Place) -> GpuInstance:
        return next(instance for instance in self.instances() if instance.place == place)

    def _first(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)


class Failing:
    """Raises at some calls, a number of times, after something else has happened."""

    def __init__(
        self,
        call: str,
        error: BaseException,
        times: int = 1,
        first: Callable[[], object] = lambda: None,
    ) -> None:
        self.call, self.error, self.times, self.first = call, error, times, first

    def __call__(self, call: str) -> None:
        if call == self.call and self.times:
            self.times -= 1
            self.first()
            raise self.error


@pytest.fixture
def driver(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.db", synchronous="OFF") as opened:
        yield opened


@pytest.fixture
def pauses_s() -> list[float]:
    return []


@pytest.fixture
def partitioner(driver: Scripted, journal: Journal, pauses_s: list[float]) -> Partitioner:
    return Partitioner(driver, journal, sleep=pauses_s.append)


def settled(partitioner: Partitioner) -> bool:
    """Nothing is begun and not ended."""
    gpu = partitioner.driver.gpu()
    entries = partitioner.journal.entries(gpu)
    return not partitioner.journal.unfinished(gpu) and all(
        entry.state is EntryState.PRESENT for entry in entries
    )


def test_plan_changes_nothing_and_apply_does_what_it_says(
    partitioner: Partitioner, driver: Scripted
) -> None:
    layout = Layout((LEFT, RIGHT))
    planned = partitioner.plan(layout)
    assert not driver.instances()
    assert partitioner.apply(layout) == planned
    assert driver.places() == [LEFT, RIGHT]
    assert [instance.place for instance in partitioner.ours()] == [LEFT, RIGHT]
    assert partitioner.apply(layout) == ()
    assert settled(partitioner)


def test_a_refused_create_takes_the_whole_change_back(
    partitioner: Partitioner, driver: Scripted
) -> None:
    partitioner.apply(Layout((WHOLE,)))
    driver.before = Failing(f"create {RIGHT}", RefusedError("no room"))
    with pytest.raises(GpuError, match="no room; the GPU is as it was before"):
        partitioner.apply(Layout((LEFT, RIGHT)))
    assert driver.places() == [WHOLE]
    assert [instance.place for instance in partitioner.ours()] == [WHOLE]
    assert settled(partitioner)


@pytest.mark.parametrize("error", [InUseError("held"), NotPermittedError("no rights")])
def test_a_destroy_that_fails_leaves_everything(
    partitioner: Partitioner, driver: Scripted, error: GpuError
) -> None:
    partitioner.apply(Layout((LEFT, RIGHT)))
    driver.before = Failing(f"destroy {RIGHT}", error)
    with pytest.raises(GpuError, match=f"{error}; the GPU is as it was before"):
        partitioner.apply(Layout((WHOLE,)))
    assert driver.places() == [LEFT, RIGHT]
    assert settled(partitioner)


def test_a_destroy_that_fails_for_a_moment_is_tried_again_a_limited_number_of_times(
    partitioner: Partitioner, driver: Scripted, pauses_s: list[float]
) -> None:
    partitioner.apply(Layout((WHOLE,)))
    driver.before = Failing(f"destroy {WHOLE}", TransientError("not yet"), 100)
    with pytest.raises(GpuError, match=r"not yet \(tried 7 times\); the GPU is as it was before"):
        partitioner.apply(Layout())
    assert driver.places() == [WHOLE]
    driver.before = Failing(f"destroy {WHOLE}", TransientError("not yet"), 3)
    partitioner.apply(Layout())
    assert not driver.instances()
    assert len(pauses_s) == 6 + 3
    assert pauses_s[:6] == sorted(set(pauses_s))


def test_where_back_is_barred_the_change_goes_forward(
    partitioner: Partitioner, driver: Scripted
) -> None:
    """A process uses what was just made, so what was before cannot come back."""
    partitioner.apply(Layout((WHOLE,)))
    with ExitStack() as stack:

        def use() -> None:
            stack.enter_context(register_use(driver.environment(driver.at(LEFT)), "eager"))

        driver.before = Failing(f"create {RIGHT}", RefusedError("no room"), first=use)
        partitioner.apply(Layout((LEFT, RIGHT)))
        assert driver.places() == [LEFT, RIGHT]
        assert settled(partitioner)


def test_where_neither_is_possible_it_says_how_things_are(
    partitioner: Partitioner, driver: Scripted
) -> None:
    partitioner.apply(Layout((WHOLE,)))
    refused = RefusedError("no room")
    driver.before = Failing(f"create {LEFT}", refused, 100, lambda: driver.foreign(ONE))
    with pytest.raises(
        GpuError, match="the GPU is not as it was before: of ours there are now no "
    ):
        partitioner.apply(Layout((LEFT, RIGHT)))
    assert driver.places() == [ONE]
    assert "1g.5gb at 1 is in the way" in partitioner.recovered.unsettled[0]
    assert settled(partitioner)
    driver.before = lambda _: None
    partitioner.apply(Layout((RIGHT,)))
    assert driver.places() == [ONE, RIGHT]


def test_one_instance_comes_and_goes_alone(partitioner: Partitioner, driver: Scripted) -> None:
    partitioner.apply(Layout((RIGHT,)))
    instance = partitioner.create(ONE)
    assert driver.places() == [ONE, RIGHT]
    assert instance == driver.at(ONE)
    with pytest.raises(GpuError, match=r"1g.5gb at 1 is there already"):
        partitioner.create(ONE)
    with pytest.raises(InputError, match="overlap"):
        partitioner.create(LEFT)
    partitioner.destroy(ONE)
    assert driver.places() == [RIGHT]
    with pytest.raises(GpuError, match=r"1g.5gb at 1 is not an instance of migrator"):
        partitioner.destroy(ONE)
    assert driver.calls[-2:] == [f"create {ONE}", f"destroy {ONE}"]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "error", [RefusedError("no room"), NotPermittedError("no"), InputError("off")]
)
def test_after_a_refused_create_an_instance_at_the_place_is_foreign(
    partitioner: Partitioner, driver: Scripted, error: MigratorError, whole: bool
) -> None:
    """Another program's `nvidia-smi mig -cgi` comes first, at the same place."""
    driver.before = Failing(f"create {ONE}", error, 100, lambda: driver.foreign(ONE, whole=whole))
    with pytest.raises(type(error)):
        partitioner.create(ONE)
    partitioner.apply(Layout((RIGHT,)))
    partitioner.clear()
    assert driver.places() == [ONE]
    assert driver.calls.count(f"destroy {ONE}") == 0


def test_of_two_halves_only_the_one_that_was_left_is_removed(
    partitioner: Partitioner, driver: Scripted
) -> None:
    """Ours disappears while another program creates one at its place."""

    def before(call: str) -> None:
        if call == f"create {ONE}":
            driver.foreign(SIX)
            driver.foreign(ONE, whole=False)
            raise HalfMadeError("no compute instance", 7)

    driver.before = before
    with pytest.raises(HalfMadeError):
        partitioner.create(ONE)
    assert driver.places() == [ONE, SIX]
    assert settled(partitioner)


def test_where_the_board_gives_no_clear_answer_half_an_instance_is_ours_and_a_whole_one_is_not(
    partitioner: Partitioner, driver: Scripted
) -> None:
    for whole in (False, True):
        came = partial(driver.foreign, ONE, whole=whole)
        driver.before = Failing(f"create {ONE}", TransientError("timeout"), 100, came)
        with pytest.raises(TransientError):
            partitioner.create(ONE)
        assert driver.places() == ([ONE] if whole else [])
        assert not partitioner.ours()
        assert settled(partitioner)


def test_half_an_instance_that_cannot_be_removed_is_reported_and_removed_later(
    partitioner: Partitioner, driver: Scripted
) -> None:
    def before(call: str) -> None:
        if call == f"create {ONE}":
            left = driver.foreign(ONE, whole=False)
            raise HalfMadeError("no compute instance", left.number)
        if call == f"destroy {ONE}":
            raise NotPermittedError("no rights")

    driver.before = before
    with pytest.raises(GpuError, match=r"create 1g.5gb at 1 was begun and is not finished: no rig"):
        partitioner.create(ONE)
    partitioner.create(RIGHT)  # others come and go meanwhile
    assert driver.places() == [ONE, RIGHT]
    partitioner.destroy(RIGHT)
    assert driver.places() == [ONE]
    driver.before = lambda _: None
    partitioner.recover()
    assert not driver.instances()


def test_in_use_is_refused_by_name_and_cleared_around(
    partitioner: Partitioner, driver: Scripted
) -> None:
    partitioner.apply(Layout((LEFT, RIGHT)))
    with register_use(driver.environment(driver.at(LEFT)), "trainer"):
        for change in (lambda: partitioner.destroy(LEFT), lambda: partitioner.apply(Layout())):
            with pytest.raises(BlockedError, match=r"4g.20gb at 0 is in the way and in use by tra"):
                change()
        assert driver.places() == [LEFT, RIGHT]
        assert [str(step) for step in partitioner.clear()] == [f"destroy {RIGHT}"]
        assert driver.places() == [LEFT]


def test_another_owners_are_not_ours_until_we_come_as_them(
    partitioner: Partitioner, driver: Scripted, journal: Journal
) -> None:
    partitioner.apply(Layout((RIGHT,)))
    other = Partitioner(driver, journal, "other")
    assert not other.ours()
    assert other.owners() == {RIGHT: "migrator"}
    with pytest.raises(BlockedError, match="it is migrator's, `migrator gpu clear --owner migra"):
        other.apply(Layout((WHOLE,)))
    assert other.clear() == ()
    assert driver.places() == [RIGHT]
    later = Partitioner(driver, journal, "migrator")
    later.clear()
    assert not driver.instances()


@pytest.mark.parametrize("finished", [True, False])
def test_an_equal_instance_of_another_owner_is_not_taken_for_ours_that_is_gone(
    partitioner: Partitioner, driver: Scripted, journal: Journal, finished: bool
) -> None:
    """Same place, same number, same UUID: only the journal can tell."""
    if finished:
        partitioner.create(ONE)
        gone = driver.at(ONE)
        driver.virtual.destroy_compute_instance(gone)
        driver.virtual.destroy_gpu_instance(gone)
    else:
        journal.begin_create(driver.gpu(), "migrator", ONE)
    Partitioner(driver, journal, "other").create(ONE)
    assert partitioner.owners() == {ONE: "other"}
    assert not partitioner.clear()
    assert not partitioner.ours()
    assert driver.places() == [ONE]


def test_what_a_killed_create_left_is_finished_or_undone(
    partitioner: Partitioner, driver: Scripted, journal: Journal
) -> None:
    for place in (ONE, SIX, RIGHT):
        journal.begin_create(driver.gpu(), "migrator", place)
    driver.foreign(ONE)
    driver.foreign(SIX, whole=False)
    report = partitioner.recover()
    assert [str(step) for step in report.finished] == [f"create {ONE}"]
    assert [str(step) for step in report.undone] == [f"create {SIX}", f"create {RIGHT}"]
    assert driver.places() == [instance.place for instance in partitioner.ours()] == [ONE]


def test_what_a_killed_destroy_left_is_finished_if_it_is_incomplete(
    partitioner: Partitioner, driver: Scripted, journal: Journal
) -> None:
    partitioner.apply(Layout((LEFT, RIGHT)))
    for entry in journal.entries(driver.gpu()):
        journal.begin_destroy(entry)
    driver.virtual.destroy_compute_instance(driver.at(RIGHT))
    report = partitioner.recover()
    assert [str(step) for step in report.finished] == [f"destroy {RIGHT}"]
    assert [str(step) for step in report.undone] == [f"destroy {LEFT}"]
    assert [instance.place for instance in partitioner.ours()] == [LEFT]
    assert settled(partitioner)


def cut_off(driver: Scripted, journal: Journal) -> None:
    """A change from the whole GPU to two halves, killed when the first was half made."""
    partitioner = Partitioner(driver, journal)
    partitioner.apply(Layout((WHOLE,)))
    journal.begin_change(driver.gpu(), "migrator", (WHOLE,), (LEFT, RIGHT))
    (entry,) = journal.entries(driver.gpu())
    gone = journal.begin_destroy(entry)
    driver.destroy(driver.at(WHOLE))
    journal.remove(gone)
    journal.begin_create(driver.gpu(), "migrator", LEFT)
    driver.foreign(LEFT, whole=False)
    driver.calls.clear()


@pytest.mark.parametrize("wanted", [(LEFT, RIGHT), (ONE, SIX), (WHOLE,), ()])
def test_after_a_crash_what_was_cut_off_is_settled_before_the_next_change(
    partitioner: Partitioner, driver: Scripted, journal: Journal, wanted: tuple[Place, ...]
) -> None:
    cut_off(driver, journal)
    assert partitioner.is_unfinished
    partitioner.apply(Layout(wanted))
    assert partitioner.recovered.undone
    assert driver.places() == list(wanted)
    assert settled(partitioner)
    assert not partitioner.is_unfinished


def test_known_and_gone_is_forgotten_and_an_equal_one_with_another_number_is_foreign(
    partitioner: Partitioner, driver: Scripted
) -> None:
    partitioner.apply(Layout((ONE, SIX)))
    for place in (ONE, SIX):
        gone = driver.at(place)
        driver.virtual.destroy_compute_instance(gone)
        driver.virtual.destroy_gpu_instance(gone)
    driver.foreign(SIX)
    assert driver.at(SIX).number == 1
    report = partitioner.recover()
    assert report.forgotten == (ONE, SIX)
    assert not partitioner.ours()


def test_a_damaged_journal_makes_all_foreign_and_touches_nothing(
    partitioner: Partitioner, driver: Scripted, journal: Journal
) -> None:
    partitioner.apply(Layout((LEFT, RIGHT)))
    there = driver.instances()
    journal.close()
    journal.path.write_bytes(b"nonsense" * 1000)
    with Journal(journal.path, synchronous="OFF") as anew:
        assert anew.damaged
        survivor = Partitioner(driver, anew)
        assert survivor.clear() == ()
        assert survivor.apply(Layout((LEFT, RIGHT))) == ()
    assert driver.instances() == there


def test_without_the_intent_on_disk_the_driver_is_not_asked(
    partitioner: Partitioner, driver: Scripted, journal: Journal
) -> None:
    journal.path.rename(journal.path.with_name("elsewhere.db"))
    for change in (lambda: partitioner.apply(Layout((LEFT,))), lambda: partitioner.create(LEFT)):
        with pytest.raises(GpuError, match="without it the GPU is not touched"):
            change()
    assert driver.calls == []


def test_ctrl_c_in_the_middle_goes_back_at_once(partitioner: Partitioner, driver: Scripted) -> None:
    partitioner.apply(Layout((WHOLE,)))
    driver.before = Failing(f"create {RIGHT}", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        partitioner.apply(Layout((LEFT, RIGHT)))
    assert driver.places() == [WHOLE]
    assert settled(partitioner)


def test_unknown_instances_are_foreign_and_never_touched(
    partitioner: Partitioner, driver: Scripted
) -> None:
    whole, half = driver.foreign(RIGHT), driver.foreign(ONE, whole=False)
    partitioner.apply(Layout((Place(2, "2g.10gb"),)))
    partitioner.clear()
    assert driver.instances() == (half, whole)
