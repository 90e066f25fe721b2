"""MIGRator: at every window's start, the plan with the highest goodput on the forecast.

`migrator` plans under the `survivors` charge: the planner chooses when to create an instance early
and which tenants to retrain. Within the window it plans the inference again as requests arrive
unless recent arrivals rule out that this pays, and everything if a retraining ends early or late.
`migrator-paper` works as in the paper: it retrains every tenant in every window and plans as if
every change cost the whole overhead; then pre-initialization gives an instance to its tenant early
if its slices are unused.
`migrator-replanned` always plans the inference again, `migrator-required` retrains every tenant and
never replans. `oracle` and `oracle-required` plan on the true arrivals: upper bounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import SolverError
from migrator.core.problem import Charge, Instance, Kind, Plan, Problem, Task
from migrator.forecast.nowcast import Nowcast
from migrator.planning.preinitialization import preinitialize
from migrator.policies.fixed_shares import equal_allocation
from migrator.policies.planning import planned
from migrator.policies.policy import Decision, Observation, Policy, Sight, TenantView

Floats = NDArray[np.float64]

HORIZON_S = 30.0
"""Horizon of a replan in seconds: beyond it the recent past says nothing."""
REPLAN_S = 1.0
"""Seconds between replans. Arrivals are counted per slot, so a burst is known a slot after it began
at the earliest; every further second until the replan is lost as well."""
OVERHEADS = 5.0
"""Minimum horizon in overheads: with slow starts and a shorter horizon no change would pay off."""
_SKILL, _DOUBT = 0.1, 2.0
"""Share of the error of the last window's mean that a nowcast must remove to replan on it, and the
standard errors by which it must be missed to rule that out. Replanning on noise costs next to
nothing; a burst that is not followed costs a lot, and bursts are rare in what was measured."""
FIRST_SEEN, FIRST_SEEN_S = 0.05, 10.0
"""Share of a window that is observed before the first plan, and its limit in seconds."""
LEAST_GAIN = 0.005
"""Share of the smallest tenant's goodput by which a replan must be better than no change. The best
of many changes on a noisy forecast looks better than it is."""
_JUDGED, _FAR, _FAR_SHARE = 5, 4.0, 0.25
"""Slots whose arrivals are compared with a forecast, and the standard errors and the share of the
forecast by which they must differ from it for a new one."""
_EARLY = 1
"""Slots before its planned end at which a completed retraining is worth a new plan."""


class Migrator(Policy):
    """The planner as a policy: one plan per window.

    If the planner finds no plan in time, the layout stays. Before the first layout the board is
    split evenly.
    """

    on_completion = False

    def __init__(
        self, name: str, summary: str, sight: Sight, charge: Charge, *, optional: bool = False
    ) -> None:
        """`optional`: plans may leave out retrainings that do not pay."""
        self.name = name
        self.summary = summary
        self.sight = sight
        self.estimates = sight is not Sight.TRUTH  # an oracle knows the accuracy
        self.charge = charge
        self.lends = charge is Charge.SURVIVORS  # the paper's slices serve one tenant
        self.optional = optional

    def decide(self, observation: Observation) -> Decision:
        """The plan of the rest of the window."""
        try:
            problem, plan = planned(observation, self.charge, optional=self.optional)
        except SolverError:
            return Decision((observation.held or equal_allocation(observation),))
        slots = [_used(slot.instances) for slot in plan.slots]
        if self.charge is Charge.PAPER:
            slots = _prepared_early(problem, plan, slots)
        return Decision(tuple(slots), problem, plan, observation.slot)


def _used(instances: tuple[Instance, ...]) -> tuple[Instance, ...]:
    return tuple(instance for instance in instances if instance.task is not None)


def _prepared_early(
    problem: Problem, plan: Plan, slots: list[tuple[Instance, ...]]
) -> list[tuple[Instance, ...]]:
    """Give every instance that can be prepared to its tenant as soon as its slices are unused."""
    early = [list(slot) for slot in slots]
    for preparation in preinitialize(problem, plan).preparations:
        instance = Instance(
            preparation.start, preparation.gpcs, Task(preparation.tenant, Kind.INFERENCE)
        )
        for slot in range(preparation.from_slot, preparation.slot):
            early[slot].append(instance)
    return [tuple(sorted(instances, key=lambda instance: instance.start)) for instances in early]


class Replanned(Migrator):
    """The window's plan, planned again within the window.

    Every `every_s` seconds the inference, if `always` or if that would have paid lately. All of
    it if a retraining is not where the plan has it. Before the first requests nothing is known of
    the tenants: they share the board evenly, and the plan follows after some seconds. While there
    are none at all, every tenant is retrained in its part.
    """

    on_completion = True

    def __init__(self, name: str, summary: str, every_s: float, *, always: bool) -> None:
        super().__init__(name, summary, Sight.START, Charge.SURVIVORS, optional=True)
        self.every_s: float | None = every_s
        self.always = always
        self._nowcast = Nowcast()

    def decide(self, observation: Observation) -> Decision:
        """The window's plan at its start, later what is to be planned again."""
        last = observation.decided
        if _is_unseen(observation):
            serving = replace(observation, tenants=tuple(map(_serving, observation.tenants)))
            return Decision((equal_allocation(serving),))
        if not any(view.history.any() for view in observation.tenants):
            return Decision((equal_allocation(observation),))  # retraining costs nothing now
        if observation.slot == 0:
            keeps = not self.always and not self._pays(observation)
            return replace(super().decide(observation), keeps_plan=keeps)
        keeps = last is not None and last.keeps_plan and not _left_forecast(observation, last)
        if last is None or not _as_planned(observation, last):
            decided = super().decide(self._foreseen(observation, last))
            return replace(decided, keeps_plan=keeps)
        assert last.plan is not None
        if keeps:
            rest = last.plan.slots[observation.slot - last.begin :]
            return replace(last, slots=tuple(_used(allocation.instances) for allocation in rest))
        return replace(self._replanned(observation, last), keeps_plan=False)

    def _replanned(self, observation: Observation, last: Decision) -> Decision:
        """The inference planned again around the plan's retrainings."""
        # imports numba, which takes 0.3 s
        from migrator.planning.survivors.replanning import replan

        assert last.plan is not None
        assert last.problem is not None
        held = [holding for holding in observation.held if isinstance(holding, Instance)]
        cold_s = dict(zip(held, observation.cold_s, strict=False))
        try:
            allocations = replan(
                last.problem,
                last.plan,
                observation.slot - last.begin,
                self._ahead(observation),
                tuple(held),
                cold_slots={
                    instance: left / observation.slot_s for instance, left in cold_s.items()
                },
                again_in=max(1, round((self.every_s or 0) / observation.slot_s)),
                least_gain=LEAST_GAIN,
            )
        except SolverError:
            return replace(last, slots=(observation.held,))
        return replace(last, slots=tuple(allocation.instances for allocation in allocations))

    def _pays(self, observation: Observation) -> bool:
        """Whether the last seconds may say more about the next ones than the last window does."""
        horizon = self._horizon(observation)
        skills = [
            self._nowcast.skill(view.history, horizon, observation.slots)
            for view in observation.tenants
        ]
        return any(skill.share + _DOUBT * skill.error > _SKILL for skill in skills)

    def _horizon(self, observation: Observation) -> int:
        """Slots that a replan looks ahead."""
        slowest_s = max(view.overhead_s for view in observation.tenants)
        slots = round(max(HORIZON_S, OVERHEADS * slowest_s) / observation.slot_s)
        return min(observation.slots_left, max(2, slots))

    def _ahead(self, observation: Observation) -> dict[str, tuple[tuple[float, ...], ...]]:
        slots = self._horizon(observation)
        return {
            view.name: tuple(
                map(tuple, self._nowcast.ahead(view.history, slots, observation.slots).tolist())
            )
            for view in observation.tenants
        }

    def _foreseen(self, observation: Observation, last: Decision | None) -> Observation:
        """The observation with a forecast of the rest of the window: that of its start, if known.

        The last seconds say nothing about minutes ahead; plans on a nowcast of all of them
        followed its noise.
        """
        known = {} if _left_forecast(observation, last) else _forecast_left(observation, last)
        tenants = (
            replace(view, ahead=known.get(view.name, self._nowcast_left(observation, view)))
            for view in observation.tenants
        )
        return replace(observation, tenants=tuple(tenants))

    def _nowcast_left(self, observation: Observation, view: TenantView) -> Floats:
        return self._nowcast.ahead(view.history, observation.slots_left, observation.slots)


def _is_unseen(observation: Observation) -> bool:
    """Whether no tenant has been observed for long enough to plan."""
    seconds = min(FIRST_SEEN_S, FIRST_SEEN * observation.slots * observation.slot_s)
    least = max(1.0, seconds / observation.slot_s)
    return all(len(view.history) < least for view in observation.tenants)


def _serving(view: TenantView) -> TenantView:
    """The tenant without its retraining."""
    return replace(view, retraining=None)


def _forecast_left(observation: Observation, last: Decision | None) -> dict[str, Floats]:
    """Per tenant, the forecast that the last plan was made on, from now on; empty if it ends
    before the window does."""
    problem = None if last is None else last.problem
    if last is None or problem is None or last.begin + problem.slots != observation.slots:
        return {}
    now = observation.slot - last.begin
    return {tenant.name: np.array(tenant.received)[:, now:] for tenant in problem.tenants}


def _left_forecast(observation: Observation, last: Decision | None) -> bool:
    """Whether the arrivals of some tenant are far from the forecast that the last plan is made on.

    Compared are the mean of the latest slots and that of every scenario in the same slots.
    """
    if last is None or last.problem is None:
        return False
    now = observation.slot - last.begin
    slots = min(now, _JUDGED, last.problem.slots)
    if slots < _JUDGED:
        return False
    for view in observation.tenants:
        forecast = [tenant for tenant in last.problem.tenants if tenant.name == view.name]
        if not forecast or len(view.history) < slots:
            continue
        means = np.array(forecast[0].received)[:, now - slots : now].mean(axis=1)
        came, mean = float(view.history[-slots:].mean()), float(means.mean())
        error = (float(means.var()) + mean / slots) ** 0.5
        if abs(came - mean) > max(_FAR * error, _FAR_SHARE * mean):
            return True
    return False


def _as_planned(observation: Observation, last: Decision) -> bool:
    """Whether there is a plan to the window's end and its retrainings run as planned."""
    if last.plan is None or last.problem is None:
        return False
    if last.begin + last.problem.slots != observation.slots:
        return False
    now = observation.slot - last.begin
    due = {
        retraining.tenant: retraining.end - now
        for retraining in last.plan.retrainings
        if retraining.start < now and retraining.end > now
    }
    running = {
        view.name
        for view in observation.tenants
        if view.retraining is not None and view.retraining.holding is not None
    }
    missed = {retraining.tenant for retraining in last.plan.retrainings if retraining.end <= now}
    for view in observation.tenants:
        state = view.retraining
        if state is not None and state.requested and not state.holding and view.name in missed:
            return False  # the plan came too late for it
    done = {view.name for view in observation.tenants if view.retraining is None}
    if any(left > _EARLY for name, left in due.items() if name in done):
        return False
    return running <= {
        retraining.tenant for retraining in last.plan.retrainings if retraining.end > now
    }


POLICIES = (
    Replanned(
        "migrator",
        "plans every window on the forecast for the highest goodput, and again where that pays",
        REPLAN_S,
        always=False,
    ),
    Migrator(
        "migrator-paper",
        "as the paper: its charge, pre-initialization, every tenant retrained in every window",
        Sight.FORECAST,
        Charge.PAPER,
    ),
    Migrator(
        "migrator-required",
        "one plan per window that retrains every tenant",
        Sight.FORECAST,
        Charge.SURVIVORS,
    ),
    Migrator(
        "migrator-once",
        "one plan per window that retrains the tenants for which it pays",
        Sight.FORECAST,
        Charge.SURVIVORS,
        optional=True,
    ),
    Replanned(
        "migrator-replanned",
        "migrator that plans the inference again every second on what came just now",
        REPLAN_S,
        always=True,
    ),
    Migrator(
        "oracle",
        "plans every window on the arrivals to come",
        Sight.TRUTH,
        Charge.SURVIVORS,
        optional=True,
    ),
    Migrator(
        "oracle-required",
        "oracle that retrains every tenant in every window",
        Sight.TRUTH,
        Charge.SURVIVORS,
    ),
)
