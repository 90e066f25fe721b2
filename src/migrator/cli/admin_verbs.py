"""Verbs that act on a running daemon: `migrator admin pause`, `roll-back` and so on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from migrator.cli.app import app
from migrator.cli.live_verbs import ScenarioName, State
from migrator.cli.options import AsJson, Yes
from migrator.cli.printing import FAILED, complain, confirm, print_json, require_confirmation
from migrator.core.action import ActionKind
from migrator.core.errors import InputError

ACTED_S = 90.0
"""Timeout of an action: a drain returns after all waiting requests are answered."""

group = typer.Typer(
    no_args_is_help=True,
    help="Control a running daemon. Each command shows what will happen and asks first.\n\n"
    "Stop changes for a while:  migrator admin pause  and then  migrator admin resume\n\n"
    "Withdraw a bad model:  migrator admin roll-back TENANT\n\n"
    "In scripts:  migrator admin drain TENANT --yes --json\n\n"
    "If the scenario defines tokens, pass the admin token in MIGRATOR_ADMIN_TOKEN or with "
    "--token-file.",
)
app.add_typer(group, name="admin")

Url = Annotated[
    str | None,
    typer.Option("--url", help="Address of the daemon; default: from its records."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the admin token; default: MIGRATOR_ADMIN_TOKEN.",
    ),
]
TenantName = Annotated[
    str, typer.Argument(metavar="TENANT", help="Name of the tenant in the scenario.")
]


@dataclass(frozen=True)
class AdminRequest:
    """An action and the daemon to send it to."""

    kind: ActionKind
    tenant: str | None
    url: str | None
    state: Path | None
    scenario: str | None
    token_file: Path | None


def _on_all(kind: ActionKind, words: str) -> None:
    """Define a command that acts on the whole daemon."""

    @group.command(kind, help=words)
    def act(
        url: Url = None,
        state: State = None,
        scenario: ScenarioName = None,
        token_file: TokenFile = None,
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        _act(AdminRequest(kind, None, url, state, scenario, token_file), yes, as_json)


def _on_one(kind: ActionKind, words: str) -> None:
    """Define a command that acts on one tenant."""

    @group.command(kind, help=words)
    def act(
        tenant: TenantName,
        url: Url = None,
        state: State = None,
        scenario: ScenarioName = None,
        token_file: TokenFile = None,
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        _act(AdminRequest(kind, tenant, url, state, scenario, token_file), yes, as_json)


_on_all(
    ActionKind.PAUSE,
    "Stop applying plans to the GPU until resumed; requests are still served.\n\nWorkers that die "
    "are replaced, running retrainings finish, plans are still recorded.",
)
_on_all(ActionKind.RESUME, "Apply plans again, beginning with the newest.")
_on_all(ActionKind.REPLAN, "Plan the rest of the window again, now.")
_on_one(
    ActionKind.ROLL_BACK,
    "Serve a tenant with the previous version of its model.\n\nThe current version is withdrawn: "
    "restarts do not serve it, and the next retraining starts from the previous one.",
)
_on_one(
    ActionKind.DRAIN,
    "Refuse new requests of a tenant, answer waiting ones, give its instances to other tenants."
    "\n\nPersists over restarts until `migrator admin undrain TENANT`; labels and model are kept.",
)
_on_one(ActionKind.UNDRAIN, "Accept requests of a drained tenant again and plan for it.")


def _act(asked: AdminRequest, yes: bool, as_json: bool) -> None:
    from migrator.cli.daemon_calls import daemon

    require_confirmation(yes)
    found = daemon(asked.url, asked.state, asked.scenario, asked.token_file)
    confirm(_consequence(asked, found.status()), yes)
    body = {"action": asked.kind, "tenant": asked.tenant}
    status, told = found.request("POST", "/admin/actions", body, ACTED_S)
    _tell(status, told, as_json)


def _tell(status: int, told: Mapping[str, Any], as_json: bool) -> None:
    done = status == 200
    words = str(told.get("words" if done else "error", f"it answered with status {status}"))
    outcome = "done" if done else "refused" if status < 500 else "failed"
    if as_json:
        print_json({"outcome": outcome, "words": words})
    elif done:
        print(words)
    else:
        complain(words)
    if not done:
        raise typer.Exit(FAILED)


def _consequence(asked: AdminRequest, status: Mapping[str, Any]) -> str:
    """What the action will do, for the user to confirm."""
    name, tenants = asked.tenant, status["tenants"]
    if name is not None and name not in tenants:
        raise InputError(
            f"TENANT: {status.get('scenario')} has no {name!r}; use {' or '.join(tenants)}"
        )
    match asked.kind:
        case ActionKind.PAUSE:
            return "No plan is applied to the GPU until resumed; requests are still served."
        case ActionKind.RESUME:
            return "The newest plan is applied from now on."
        case ActionKind.REPLAN:
            return "The rest of the window is planned again now."
        case ActionKind.ROLL_BACK:
            back = [str(each) for each in tenants[name].get("back_to", ())]
            to = f"version {back[0]}" if back else "an earlier version"
            return f"{name} is served with {to}, version {tenants[name]['version']} is withdrawn."
        case ActionKind.DRAIN:
            return f"New requests of {name} are refused with 503, its instances go to others."
        case ActionKind.UNDRAIN:
            return f"Requests of {name} are accepted again, and it gets instances."
