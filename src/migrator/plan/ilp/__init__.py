"""The paper's ILP, complete and corrected: the written-down formulation of the problem.

The exact planner is the fast one; this is the one to read beside the paper, to hold the other
against on small windows, and to give to a MILP solver. Every row is named after the label of
the paper's formula, e.g. `reconfiguration[bert,12,3+1]`. There is no large constant H in it:
what the paper switches on and off with H is the choice of a column here.

How each printed formula became which group (modules in brackets; the numbers are those of the
errors in print that the group corrects):

- feasibility_1, feasibility_2 -> `feasibility` [paper, survivors]: the sizes chosen
  have places. Selecting exactly one configuration F says that the sizes in use fit into one
  of the 12; sizes fit into one exactly when they can be laid on the slices without overlap,
  which with `instance_sharing` is what the rows ask, and which a running retraining that
  cannot move needs to be asked slice by slice.
- instance_sharing -> `instance_sharing` [patterns]: one row per memory slice.
- retrain_1_instance, retrain_current_status -> `retrain_1_instance` [retraining]; N and
  the status C are one number, the sum of `running` over the placements.
- retrain_start -> `retrain_start` [retraining]: the start z is the column
  y[m, t, placement] (3), at most one per tenant.
- equals_in_ilp, retrain_no_interruption -> `retrain_no_interruption` [retraining]: a
  start, and nothing else, makes its placement run for the RT of its own size. It binds at
  the start slot only (2), and RT is looked up, not indexed by a variable (3).
- retrain_5 -> `retrain_5` [retraining]: launched, and completed by the window's end.
- inference_starvation_calculation_1, _2 -> `inference_starvation` [patterns]: exactly one
  pattern, and each pattern has one instance of at least L GPCs (4), not L GPCs in sum.
- objective:throughput -> charge `paper`: the objective's coefficients [tables], because
  capability, number of instances and so the charge are constants of a pattern (3); charge
  `survivors`: `throughput` [survivors], the linear pieces of the minimum.
- reconfiguration -> `reconfiguration` [paper]: free only what was held before, so a
  change is always charged (1), also one that leaves both counts as they are (3+1 to 2+2);
  [survivors]: warm only what the tenant has held for the overhead.
- retrain_end -> `retrain_end` [retraining]: Completion.
- Goodput of task and second -> `goodput` [patterns]: served at the accuracy that
  Completion names, without a product: the pattern is chosen per stage.

Error 5 (requests still queued from the slot before) is no formula of the plan: the simulator
carries the queue.
"""

from migrator.plan.ilp.model import Group, Model
from migrator.plan.ilp.solve import Formulation, IlpOutcome, Status, build_ilp, solve_ilp

__all__ = ["Formulation", "Group", "IlpOutcome", "Model", "Status", "build_ilp", "solve_ilp"]
