"""Who is to live where when things have changed: pure, from what is known to what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from migrator.cluster.fleet.reports import ClusterMap, Report


def homes_from(reports: Mapping[str, Report]) -> dict[str, str]:
    """Tenant -> GPU, as the agents say; of two the one that takes its requests."""
    found: dict[str, tuple[bool, str]] = {}
    for gpu, report in sorted(reports.items()):
        for name, each in report.tenants.items():
            known = found.get(name)
            if known is None or (each.ready and not known[0]):
                found[name] = each.ready, gpu
    # a daemon that is being started, or hangs, has not said what it has
    assigned = {name: gpu for gpu, each in reports.items() for name in each.assigned}
    return assigned | {name: gpu for name, (_, gpu) in found.items()}


def homeless(
    tenants: Collection[str], homes: Mapping[str, str], alive: Collection[str]
) -> list[str]:
    """Those whom nobody serves, in the scenario's order."""
    return [each for each in tenants if homes.get(each) not in alive]


def strays(
    homes: Mapping[str, str],
    reports: Mapping[str, Report],
    answering: Mapping[str, Report] | None = None,
) -> list[tuple[str, str]]:
    """(GPU, tenant) of daemons that have a tenant which lives elsewhere, and is served there.

    `answering`: of all GPUs whose agents take orders, also where a daemon hangs that must not
    begin with the tenant when it is started again; by default the `reports`.
    """
    found = []
    for gpu, report in (reports if answering is None else answering).items():
        for name in dict.fromkeys((*report.tenants, *report.assigned)):
            home = homes.get(name)
            if home is None or home == gpu or home not in reports:
                continue
            there = reports[home].tenants.get(name)
            if there is not None and there.ready:
                found.append((gpu, name))
    return found


def missing(homes: Mapping[str, str], reports: Mapping[str, Report]) -> list[str]:
    """Tenants whose home is up and does not know them."""
    return [
        name
        for name, gpu in homes.items()
        if gpu in reports and reports[gpu].up and name not in reports[gpu].tenants
    ]


def next_map(
    known: ClusterMap,
    epoch: int,
    tenants: Sequence[str],
    homes: Mapping[str, str],
    reports: Mapping[str, Report],
    words: Mapping[str, str],
) -> ClusterMap | None:
    """The map as it should be now; None: it is as it was. `words`: why somebody is away.

    `reports`: of every daemon that takes requests, also of those that their tenants are to leave.

    Who is in the map stays while its instances change; who comes is in it once it is ready.
    """
    served, away = {}, {}
    for name in tenants:
        report = reports.get(homes.get(name, ""))
        there = None if report is None else report.tenants.get(name)
        if report is None or there is None:
            away[name] = words.get(name, "it is on its way to a GPU")
        elif there.ready or known.homes.get(name) == report.url:
            served[name] = report.url
        else:
            why = "it is drained" if there.drained else "it has no instance yet"
            away[name] = words.get(name, why)
    pages = {gpu: report.url for gpu, report in reports.items()}
    if (served, away, pages, epoch) == (known.homes, known.away, known.pages, known.epoch):
        return None
    return ClusterMap(epoch, known.version + 1, served, away, pages, known.admin)
