"""Verbs that act on a running daemon: `migrator admin pause`, `roll-back` and so on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from migrator.cli.app import app
from migrator.cli.live_verbs import ScenarioName, State
from migrator.cli.plan_verbs import AsJson
from migrator.cli.printing import FAILED, complain, print_json
from migrator.core.action import ActionKind
from migrator.core.errors import InputError

ACTED_S = 90.0
"""A drain answers once what waited is answered."""

group = typer.Typer(
    no_args_is_help=True,
    help="Act on a running daemon; each says first what will happen and asks.\n\n"
    "Stop changes while you look:  migrator admin pause  and then  migrator admin resume\n\n"
    "A bad model:  migrator admin roll-back TENANT\n\n"
    "Without a terminal:  migrator admin drain TENANT --yes --json\n\n"
    "Where the scenario has tokens, the one called admin comes in MIGRATOR_ADMIN_TOKEN or "
    "--token-file.",
)
app.add_typer(group, name="admin")

Url = Annotated[
    str | None,
    typer.Option("--url", help="Where it listens; default as its records say."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Has the token for administration; default MIGRATOR_ADMIN_TOKEN.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="Its name in the scenario.")]


@dataclass(frozen=True)
class Asked:
    """An action, and which daemon it is for."""

    kind: ActionKind
    tenant: str | None
    url: str | None
    state: Path | None
    scenario: str | None
    token_file: Path | None


def _on_all(kind: ActionKind, words: str) -> None:
    """A verb about the whole daemon."""

    @group.command(kind, help=words)
    def act(
        url: Url = None,
        state: State = None,
        scenario: ScenarioName = None,
        token_file: TokenFile = None,
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        _act(Asked(kind, None, url, state, scenario, token_file), yes, as_json)


def _on_one(kind: ActionKind, words: str) -> None:
    """A verb about one tenant."""

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
        _act(Asked(kind, tenant, url, state, scenario, token_file), yes, as_json)


_on_all(
    ActionKind.PAUSE,
    "Change nothing on the GPU for a plan until resumed; what serves goes on.\n\nWorkers that die "
    "are replaced, retrainings that run go on to their end, plans are recorded.",
)
_on_all(ActionKind.RESUME, "Follow the newest plan again.")
_on_all(ActionKind.REPLAN, "Ask the policy for another plan of the rest of the window, at once.")
_on_one(
    ActionKind.ROLL_BACK,
    "Serve a tenant with the version of its model before the one that serves.\n\nThe newer one is "
    "withdrawn: no restart serves it, and the next retraining begins from the other.",
)
_on_one(
    ActionKind.DRAIN,
    "Take no requests of a tenant any more, answer those that wait, give its instances to others."
    "\n\nIt stays so after a restart, until `migrator admin undrain TENANT`; labels and model "
    "stay.",
)
_on_one(ActionKind.UNDRAIN, "Take requests of a drained tenant again, and plan for it.")


def _act(asked: Asked, yes: bool, as_json: bool) -> None:
    from migrator.cli.daemon_calls import daemon

    if not yes and not sys.stdin.isatty():
        raise InputError("--yes: nobody can be asked here whether to do it; add --yes if so")
    found = daemon(asked.url, asked.state, asked.scenario, asked.token_file)
    words = _what_happens(asked, found.status())
    if not yes and not _confirmed(words):
        complain("nothing was done; it was not confirmed")
        raise typer.Exit(FAILED)
    body = {"action": asked.kind, "tenant": asked.tenant}
    status, told = found.asked("POST", "/admin/actions", body, ACTED_S)
    _tell(status, told, as_json)


def _confirmed(words: str) -> bool:
    """Asked beside the answer, so that `--json` alone is on the output."""
    print(f"{words} Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


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


def _what_happens(asked: Asked, status: Mapping[str, Any]) -> str:
    """One sentence for whoever has to confirm it."""
    name, tenants = asked.tenant, status["tenants"]
    if name is not None and name not in tenants:
        raise InputError(
            f"TENANT: {status.get('scenario')} has no {name!r}; use {' or '.join(tenants)}"
        )
    match asked.kind:
        case ActionKind.PAUSE:
            return "Nothing on the GPU is changed for a plan until resumed; what serves goes on."
        case ActionKind.RESUME:
            return "The newest plan is followed from now on."
        case ActionKind.REPLAN:
            return "The policy is asked for another plan now."
        case ActionKind.ROLL_BACK:
            back = [str(each) for each in tenants[name].get("back_to", ())]
            to = f"version {back[0]}" if back else "an earlier version"
            return f"{name} is served with {to}, version {tenants[name]['version']} is withdrawn."
        case ActionKind.DRAIN:
            return f"New requests of {name} are refused with 503, its instances go to others."
        case ActionKind.UNDRAIN:
            return f"{name} takes requests again and gets instances."
