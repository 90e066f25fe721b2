"""Labels on their way from the API to the disk, counted by what became of them."""

from __future__ import annotations

from collections.abc import Callable

from migrator.core.errors import InputError
from migrator.live.labels import Labels, NotKeptError
from migrator.live.tallies import FAILED, REPEATED, STORED, Tallies
from migrator.serve.backend import Feedback
from migrator.serve.refusals import MalformedError, NotStoredError


async def stored(
    labels: Labels, tallies: Tallies, refused: Callable[[str, str], None], feedback: Feedback
) -> None:
    """Returns when it is on disk; otherwise a refusal says why it is not.

    `refused` is called with the tenant and the reason where there is no space for its labels.
    """
    tenant, outcome = feedback.tenant, FAILED
    try:
        new = await labels.add(
            tenant,
            feedback.window,
            feedback.inputs,
            feedback.label,
            feedback.predicted,
            feedback.request_id,
        )
        outcome = STORED if new else REPEATED
    except NotKeptError as error:
        refused(tenant, str(error))
        raise NotStoredError(f"the label is not stored: {error}") from error
    except InputError as error:
        raise MalformedError(str(error)) from error
    finally:
        tallies.labels[tenant, outcome] += 1
