"""Tokens of a live scenario: read from a file or from environment variables, and checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path

from migrator.core.errors import InputError
from migrator.io.data_file import read_yaml_file
from migrator.io.strict import Location, listed, refuse, shown
from migrator.workload.live import ADMIN, Live

LEAST_LENGTH = 16
"""Minimum number of characters of a token. Shorter ones can be guessed."""
CLIENT_VARIABLES = ("MIGRATOR_ADMIN_TOKEN", "MIGRATOR_TOKEN")
"""Environment variables from which commands that call a daemon read their token."""
_FILE, _VARIABLES = ("live", "tokens"), ("live", "token_variables")


def read_tokens(
    live: Live, tenants: Collection[str], environment: Mapping[str, str]
) -> dict[str, str] | None:
    """Name -> token for each tenant, `admin`, and other names that have one; None if no tokens are
    required.

    Raises InputError if one is missing, short, or used twice. The message never contains a token.
    """
    if live.token_file is not None:
        return _from_file(live.token_file, tenants)
    if live.token_variables is None:
        return None
    _require_names(live.token_variables, tenants, _VARIABLES)
    tokens = {
        name: _from_environment(name, variable, environment)
        for name, variable in live.token_variables.items()
        if name in (ADMIN, *tenants) or environment.get(variable)
    }
    _require_safe(tokens, _VARIABLES)
    return tokens


def require_tokens(live: Live, tenants: Collection[str]) -> None:
    """InputError if the file of tokens, or the list of their variables, cannot be used.

    Variables may be unset: they are set where the daemon runs.
    """
    if live.token_file is not None:
        _from_file(live.token_file, tenants)
    elif live.token_variables is not None:
        _require_names(live.token_variables, tenants, _VARIABLES)


def names_without_tenant(live: Live, tenants: Collection[str]) -> str:
    """A warning if there are tokens of other names; they may be of tenants that are added later."""
    names: Collection[str] = live.token_variables or ()
    key = _VARIABLES
    if live.token_file is not None:
        key, names = _FILE, _from_file(live.token_file, ())  # a removed tenant needs none
    others = [name for name in names if name not in (ADMIN, *tenants)]
    if not others:
        return ""
    return f"{'.'.join(key)}: {listed(others, last='and')}: no tenant here has this name"


def drop_token_variables(live: Live, environment: MutableMapping[str, str]) -> None:
    """Remove tokens that were read, so that child processes do not inherit them."""
    for variable in (*CLIENT_VARIABLES, *(live.token_variables or {}).values()):
        environment.pop(variable, None)


def _from_file(path: Path, tenants: Collection[str]) -> dict[str, str]:
    def parse(data: object) -> dict[str, str]:
        if not isinstance(data, dict) or not all(isinstance(v, str) for v in data.values()):
            raise InputError("this is no list of tokens; write lines of `name: token`, all as text")
        _require_names(data, tenants, _FILE)
        _require_safe(data, _FILE)
        return data

    if not path.exists():
        refuse(
            _FILE,
            f"there is no file {shown(str(path))}",
            f"write lines of `name: token` into it, for {ADMIN} and every tenant",
        )
    return read_yaml_file(path, parse)


def _from_environment(name: str, variable: str, environment: Mapping[str, str]) -> str:
    if not environment.get(variable):
        wrong = f"the variable {shown(variable)} is not set"
        refuse((*_VARIABLES, name), wrong, "put the token into it")
    return environment[variable]


def _require_names(tokens: Mapping[str, object], tenants: Collection[str], key: Location) -> None:
    missing = [tenant for tenant in (ADMIN, *tenants) if tenant not in tokens]
    if missing:
        refuse(key, f"{listed(missing, last='and')} without a token", "give every name one")


def _require_safe(tokens: Mapping[str, str], key: Location) -> None:
    owners: dict[str, str] = {}
    for name, token in tokens.items():
        if len(token) < LEAST_LENGTH or not token.isascii() or not token.isprintable():
            refuse(
                (*key, name),
                "this token is too short or has characters that headers cannot carry",
                f"give at least {LEAST_LENGTH} ASCII characters, such as `openssl rand -hex 24`",
            )
        if " " in token:
            refuse((*key, name), "this token has a blank in it", "give one without")
        if token in owners:
            refuse((*key, name), f"{owners[token]} has the same token", "give each its own")
        owners[token] = name
