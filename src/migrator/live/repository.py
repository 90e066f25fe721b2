"""Tenants that operators add to a daemon and remove from it, by name or with their section.

It checks what is asked for and stores it, so that a restarted daemon serves the same tenants;
`Admission` carries it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from migrator.core.errors import HttpError, InputError
from migrator.io.strict import listed
from migrator.live.admission import Admission
from migrator.live.context import Context
from migrator.live.operator_actions import OperatorActions
from migrator.live.room import NoRoomError, require_room
from migrator.live.stored_tenants import StoredTenants
from migrator.serving.http.access import digest
from migrator.workload.live import LiveScenario
from migrator.workload.tokens import read_tokens


class Repository:
    """The tenants of one daemon without a cluster; used in its event loop.

    There is one change at a time. It is stored once it is done, so that after one that fails or is
    cancelled the file is as before. None is begun while the file cannot be written, as on a full
    disk: undoing it later would move instances for nothing.
    """

    def __init__(
        self,
        context: Context,
        admission: Admission,
        actions: OperatorActions,
        stored: StoredTenants,
    ) -> None:
        self._context, self._admission, self._actions = context, admission, actions
        self._stored, self._lock = stored, asyncio.Lock()

    @property
    def removed(self) -> list[str]:
        """Tenants that `load` serves again."""
        return self._stored.removed

    async def add(self, section: object, folder: str | None) -> str:
        """Serve the tenant of a section of a scenario.

        `folder`: paths in it are relative to this. HttpError 409 if it is there already or does not
        fit, InputError if it cannot be used.
        """
        async with self._lock:
            return await self._add(section, folder)

    async def load(self, name: str, section: object | None) -> str:
        """Serve a removed tenant again, or with a section another one of that name.

        One that is served stays as it is.
        """
        async with self._lock:
            if self._admission.serves(name):
                if section is not None:
                    raise HttpError(409, f"{name} is served already; unload it first")
                return f"{name} is served already"
            if section is not None:
                if not isinstance(section, Mapping):
                    raise InputError(
                        "config: this is no tenant; give an entry of a scenario's tenants"
                    )
                return await self._add({**section, "name": name}, None)
            if name not in self._stored.names:
                names = listed(self._stored.names)
                raise HttpError(
                    404,
                    f"there is no {name} to load; name {names}, or add it with its section "
                    "(`migrator admin add FILE`, or the parameter `config`)",
                )
            return await self._serve(self._stored.of(name), lambda: self._stored.restore(name))

    async def remove(self, name: str) -> str:
        """Answer the tenant's waiting requests, and serve it no longer.

        HttpError 404 if there is none, 409 if it is the last one.
        """
        async with self._lock:
            tenants = self._context.tenants
            if name not in tenants:
                why = "is removed already" if name in self.removed else "is not there"
                raise HttpError(404, f"{name} {why}; name {listed(list(tenants))}")
            if not any(self._admission.serves(other) for other in tenants if other != name):
                raise HttpError(
                    409, f"{name} is the last one; add another first, drain it, or stop the daemon"
                )
            await asyncio.to_thread(self._stored.require_writable)
            message = await self._admission.remove(name)
            try:
                await asyncio.to_thread(self._stored.remove, name)
            except InputError:
                await self._admission.add(self._stored.of(name))
                raise
            return message

    async def _add(self, section: object, folder: str | None) -> str:
        if not isinstance(section, Mapping):
            raise InputError("this is no tenant; give it as an entry of a scenario's tenants")
        if folder is not None and not Path(folder).is_absolute():
            raise InputError("folder: this is no absolute path; give one")
        where = None if folder is None else Path(folder)
        scenario = await asyncio.to_thread(self._stored.read, section, where)
        name = scenario.tenants[0].name
        if self._admission.serves(name):
            raise HttpError(
                409, f"{name} is served already; remove it first, or give this one another name"
            )
        if name in self._context.tenants:
            raise HttpError(409, f"the removal of {name} failed; remove it again, or load it")
        return await self._serve(scenario, lambda: self._stored.add(name, section, where))

    async def _serve(self, scenario: LiveScenario, store: Callable[[], None]) -> str:
        """Serve the scenario's tenant and store that; if it cannot be stored, it is removed."""
        await asyncio.to_thread(self._stored.require_writable)
        await self._require(scenario)
        message = await self._admission.add(scenario)
        try:
            await asyncio.to_thread(store)
        except InputError:
            await self._admission.remove(scenario.tenants[0].name)
            raise
        return message

    async def _require(self, scenario: LiveScenario) -> None:
        """Refuse a tenant that has no room or no token. One that was removed is not drained."""
        await self._admission.require_ready()
        service, context = scenario.tenants[0].service, self._context
        others = [other.service for other in context.tenants.values()]
        try:
            require_room(service, others, context.board, context.executor.memory.limit_mib)
        except NoRoomError as error:
            raise HttpError(409, str(error)) from error
        await asyncio.to_thread(self._take_token, service.tenant)
        if service.tenant not in context.tenants:  # else its removal failed, and it stays drained
            drained = self._actions.drained
            await asyncio.to_thread(drained.set, service.tenant, drained=False)

    def _take_token(self, name: str) -> None:
        """Accept the tenant's token from now on; InputError if it has none."""
        serving = self._context.serving
        live, tokens = serving.live.live, serving.tokens
        if live.token_file is None:
            if tokens.configured and not tokens.knows(name):
                raise InputError(
                    f"{name}: there is no token for it, and token_variables are read at the start "
                    "only; put it into the scenario and restart the daemon, or use live.tokens"
                )
            return
        token = (read_tokens(live, [name], {}) or {})[name]
        tokens.set(name, digest(token))
