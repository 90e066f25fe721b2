"""The verbs `migrator admin ...`, which control a running daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from migrator.cli.app import (
    FAILED,
    AsJson,
    Ca,
    ScenarioName,
    State,
    TokenFile,
    Url,
    Yes,
    app,
    complain,
    confirm,
    print_json,
    require_confirmation,
    say,
)
from migrator.core.action import ActionKind
from migrator.core.errors import InputError

_ACTION_S = 90.0
"""Timeout of an action: a drain returns after all waiting requests are answered."""
_ADD_S = 3600.0
"""Timeout until a tenant is served: its model may have to be trained first."""
group = typer.Typer(
    no_args_is_help=True,
    help="Control a running daemon. Each command shows what will happen and asks first.\n\n"
    "Stop changes for a while:  migrator admin pause  and then  migrator admin resume\n\n"
    "Withdraw a bad model:  migrator admin roll-back TENANT\n\n"
    "Serve one more model:  migrator admin add FILE\n\n"
    "In scripts:  migrator admin drain TENANT --yes --json\n\n"
    "If the scenario defines tokens, pass the admin token in MIGRATOR_ADMIN_TOKEN or with "
    "--token-file.",
)
app.add_typer(group, name="admin")
TenantName = Annotated[
    str, typer.Argument(metavar="TENANT", help="Name of the tenant in the scenario.")
]
_Where = tuple[str | None, Path | None, str | None, Path | None, Path | None]
"""Arguments of `find_daemon`."""


@dataclass(frozen=True)
class _AdminRequest:
    """What is sent to the daemon. `consequence`: what it will do, or that from its status."""

    consequence: str | Callable[[Mapping[str, Any]], str]
    path: str
    body: object
    limit_s: float = _ACTION_S
    waits_until: str = ""
    """What the daemon answers after, if that takes a while."""


def _on_all(name: str, help_text: str, make: Callable[[], _AdminRequest]) -> None:
    @group.command(name, help=help_text)
    def act(
        url: Url = None,
        state: State = None,
        scenario: ScenarioName = None,
        token_file: TokenFile = None,
        ca: Ca = None,
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        _send(make(), (url, state, scenario, token_file, ca), yes, as_json)


def _on_one(name: str, help_text: str, make: Callable[[str], _AdminRequest]) -> None:
    @group.command(name, help=help_text)
    def act(
        tenant: TenantName,
        url: Url = None,
        state: State = None,
        scenario: ScenarioName = None,
        token_file: TokenFile = None,
        ca: Ca = None,
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        _send(make(tenant), (url, state, scenario, token_file, ca), yes, as_json)


def _send(request: _AdminRequest, where: _Where, yes: bool, as_json: bool) -> None:
    """Send the request once it is confirmed, and print the outcome; exit with 1 unless done."""
    from migrator.cli.daemon import find_daemon

    require_confirmation(yes)
    daemon = find_daemon(*where)
    consequence = request.consequence
    if not isinstance(consequence, str):
        consequence = consequence(daemon.status())
    confirm(consequence, yes)
    if request.waits_until:
        say(f"waiting until {request.waits_until}")
    status, answer = daemon.request("POST", request.path, request.body, request.limit_s)
    done = status == 200
    sentence = str(answer.get("words" if done else "error", f"it answered with status {status}"))
    if as_json:
        outcome = "done" if done else "refused" if status < 500 else "failed"
        print_json({"outcome": outcome, "words": sentence})
    elif done:
        print(sentence)
    else:
        complain(sentence)
    if not done:
        raise typer.Exit(FAILED)


def _action(kind: ActionKind, tenant: str | None = None) -> _AdminRequest:
    body = {"action": kind, "tenant": tenant}
    waits_until = _answered(tenant) if tenant and kind is ActionKind.DRAIN else ""
    consequence = partial(_consequence, kind, tenant)
    return _AdminRequest(consequence, "/admin/actions", body, waits_until=waits_until)


def _answered(tenant: str) -> str:
    return f"the requests of {tenant} are answered and its instances are free"


def _served(tenant: object) -> str:
    return f"an instance serves {tenant}; a model that has no weights yet is trained first"


def _consequence(kind: ActionKind, name: str | None, status: Mapping[str, Any]) -> str:
    tenants = status["tenants"]
    if name is not None and name not in tenants:
        raise InputError(
            f"TENANT: {status.get('scenario')} has no {name!r}; use {' or '.join(tenants)}"
        )
    if name is not None and kind is ActionKind.ROLL_BACK:
        back = [str(version) for version in tenants[name].get("back_to", ())]
        to = f"version {back[0]}" if back else "an earlier version"
        return f"{name} is served with {to}, version {tenants[name]['version']} is withdrawn."
    return _CONSEQUENCES[kind].format(name=name)


_CONSEQUENCES = {
    ActionKind.PAUSE: "No plan is applied to the GPU until resumed; requests are still served.",
    ActionKind.RESUME: "The newest plan is applied from now on.",
    ActionKind.REPLAN: "The rest of the window is planned again now.",
    ActionKind.DRAIN: "New requests of {name} are refused with 503, its instances go to others.",
    ActionKind.UNDRAIN: "Requests of {name} are accepted again, and it gets instances.",
    ActionKind.RETRAIN: (
        "{name} is retrained on its labels up to now as soon as there is room, whether a plan "
        "expects it to pay or not."
    ),
}


def _load(tenant: str) -> _AdminRequest:
    consequence = f"{tenant} is served again; other tenants may get smaller instances."
    path = f"/v2/repository/models/{quote(tenant, safe='')}/load"
    return _AdminRequest(consequence, path, {}, _ADD_S, _served(tenant))


def _remove(tenant: str) -> _AdminRequest:
    consequence = f"{tenant} answers no more requests; its instances go to the others."
    body = {"remove": tenant}
    return _AdminRequest(consequence, "/admin/tenants", body, waits_until=_answered(tenant))


for _kind, _help in {
    ActionKind.PAUSE: "Stop applying plans to the GPU until resumed; requests are still served."
    "\n\nWorkers that die are replaced, running retrainings finish, plans are still recorded.",
    ActionKind.RESUME: "Apply plans again, beginning with the newest.",
    ActionKind.REPLAN: "Plan the rest of the window again, now.",
}.items():
    _on_all(_kind, _help, partial(_action, _kind))
for _kind, _help in {
    ActionKind.ROLL_BACK: "Serve a tenant with the previous version of its model.\n\nThe current "
    "version is withdrawn: restarts do not serve it, and the next retraining starts from the "
    "previous one.",
    ActionKind.DRAIN: "Refuse new requests of a tenant, answer waiting ones, give its instances "
    "to other tenants.\n\nPersists over restarts until `migrator admin undrain TENANT`; labels and "
    "model are kept.",
    ActionKind.UNDRAIN: "Accept requests of a drained tenant again and plan for it.",
    ActionKind.RETRAIN: "Retrain a tenant on its labels up to now, as soon as there is room.\n\n"
    "Plans contain it whether it pays or not; labels that come later are learned in the next "
    "window.",
}.items():
    _on_one(_kind, _help, partial(_action, _kind))


@group.command()
def add(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="One entry of a scenario's tenants, in YAML, with a name."
        ),
    ],
    url: Url = None,
    state: State = None,
    scenario: ScenarioName = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Serve one more tenant; the others are served throughout.

    Returns once an instance serves it, also after a pre-training. Refused if it does not fit.
    Persists over restarts until `migrator admin remove TENANT`. Paths in FILE are relative to it,
    on the daemon's machine.
    """
    from migrator.io.data_file import read_yaml_file

    section = read_yaml_file(file, _section)
    name = section.get("name") or section.get("model")
    consequence = f"{name} is served as well; other tenants may get smaller instances."
    body = {"admit": section, "folder": str(file.parent.absolute())}
    request = _AdminRequest(consequence, "/admin/tenants", body, _ADD_S, _served(name))
    _send(request, (url, state, scenario, token_file, ca), yes, as_json)


def _section(data: object) -> dict[str, Any]:
    if not isinstance(data, dict) or not data:
        raise InputError("this is no tenant; write the keys of one entry of a scenario's tenants")
    if "tenants" in data:
        raise InputError("this is a whole scenario; write one entry of its tenants alone")
    return data


_on_one("load", "Serve a removed tenant again, with the model and the labels that it had.", _load)
_on_one(
    "remove",
    "Serve a tenant no longer: answer its waiting requests and free its instances.\n\nPersists "
    "over restarts until `migrator admin load TENANT`; labels and model are kept.",
    _remove,
)
