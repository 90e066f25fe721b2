"""A user's own forecaster by import path: a function, or a class with a method `ahead`.

What it returns is checked, as every plan rests on it.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.registry import import_class, make
from migrator.forecast.forecaster import Counts, without_gaps

_Ahead = Callable[[Counts, int, int], object]
_TAKES = "(history, slots, window_slots)"


class OwnForecaster:
    """The forecaster at an import path, which is its name: so other processes can load it."""

    def __init__(self, path: str) -> None:
        """Import it. InputError if there is none, or it cannot be called as a forecaster."""
        self.name = path
        target = import_class("forecaster", path)
        if not isinstance(target, type | FunctionType):
            raise InputError(
                f"forecaster: {path} is no function and no class; name a function that takes "
                f"{_TAKES}, or a class with such a method ahead that can be made without arguments"
            )
        self.summary = (inspect.getdoc(target) or "").partition("\n")[0]
        self._ahead = self._callable(target)

    def __reduce__(self) -> tuple[type[OwnForecaster], tuple[str]]:
        return OwnForecaster, (self.name,)

    def ahead(self, history: Counts, slots: int, window_slots: int) -> NDArray[np.float64]:
        """Scenarios of the next `slots` slots; InputError if what it returns is none."""
        if len(history) == 0:
            return np.ones((1, slots))
        try:
            answer = self._ahead(without_gaps(history).copy(), slots, window_slots)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise InputError(
                f"forecaster: {self.name} failed with {type(error).__name__}: {error} "
                f"({Path(last.filename).name}, line {last.lineno}); correct it"
            ) from error
        return self._scenarios(answer, slots)

    def _callable(self, target: type | FunctionType) -> _Ahead:
        ahead: object = target
        if isinstance(target, type):
            made = make("forecaster", self.name, target)
            ahead = getattr(made, "ahead", None)
            if not callable(ahead):
                raise InputError(
                    f"forecaster: {self.name} lacks a method ahead; add one that takes {_TAKES}"
                )
        call = cast("_Ahead", ahead)
        try:
            inspect.signature(call).bind(np.ones(1), 1, 1)
        except TypeError as error:
            what = "its method ahead" if isinstance(target, type) else "it"
            raise InputError(
                f"forecaster: {self.name} cannot be called ({error}); {what} must take {_TAKES}"
            ) from error
        return call

    def _scenarios(self, answer: object, slots: int) -> NDArray[np.float64]:
        """The answer as scenarios; a list of numbers is the only one."""
        no_array = f"{type(answer).__name__}, which is no array of numbers"
        if answer is None:
            raise self._refused(no_array)
        try:
            rows = np.atleast_2d(np.asarray(answer, dtype=np.float64))
        except Exception as error:  # also of the answer's own class, as of a tensor with a gradient
            raise self._refused(f"{no_array} ({error})") from error
        if rows.ndim != 2 or rows.shape[1] != slots or len(rows) == 0:
            shape = " x ".join(map(str, np.shape(rows)))
            raise self._refused(f"an array of {shape} for {slots} slots")
        for what, wrong in (("not finite", ~np.isfinite(rows)), ("negative", rows < 0)):
            if wrong.any():
                at = int(np.flatnonzero(wrong.any(axis=0))[0])
                value = rows[:, at][wrong[:, at]][0]
                raise self._refused(f"{value:g} for slot {at}, which is {what}")
        return rows

    def _refused(self, what: str) -> InputError:
        return InputError(
            f"forecaster: {self.name} returned {what}; return requests per slot, one number of at "
            "least 0 for each of the slots, or such rows as equally likely scenarios"
        )
