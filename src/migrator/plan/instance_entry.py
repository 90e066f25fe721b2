"""An instance as the problem file and the plan file write it."""

from __future__ import annotations

from pydantic import Field

from migrator.core.instance import Instance, Task
from migrator.io.strict import Count, Entry, Location, Position, refuse, shown


class InstanceEntry(Entry):
    """An instance as both files write it."""

    start: Position = Field(description="its first memory slice, an integer of at least 0")
    gpcs: Count = Field(description="its size in GPCs, an integer of at least 1")
    task: str | None = Field(description='"TENANT/inference", "TENANT/retraining" or null')

    def instance(self, location: Location) -> Instance:
        """The instance; `location` is where this entry stands in its file."""
        return Instance(self.start, self.gpcs, self._task((*location, "task")))

    def _task(self, location: Location) -> Task | None:
        if self.task is None:
            return None
        try:
            return Task.parse(self.task)
        except ValueError:
            refuse(
                location,
                f"{shown(self.task)} is not a task",
                'write "TENANT/inference", "TENANT/retraining" or null',
            )


def instance_to_json(instance: Instance) -> dict[str, object]:
    """The instance as both files write it."""
    task = None if instance.task is None else str(instance.task)
    return {"start": instance.start, "gpcs": instance.gpcs, "task": task}
