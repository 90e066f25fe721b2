"""numba's compiler with less to do: kernels never use negative indices and create no arrays.

The first use of a planner is mostly numba's own Python code, so each part here leaves work out:
passes for what kernels do not have, the search for an operator's types where it is known, code for
negative indices, and machine code of kernels that only other kernels call.
"""

from __future__ import annotations

import operator
from typing import Any, ClassVar

from numba import types
from numba._dynfunc import make_function
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numba.core.typing.context import Context
from numba.np.arrayobj import load_item, store_item

_UNUSED = frozenset(
    (
        "DeadBranchPrune",
        "FindLiterallyCalls",
        "InlineClosureLikes",
        "InlineInlinables",
        "InlineOverloads",
        "LiteralPropagationSubPipelinePass",
        "LiteralUnroll",
        "MakeFunctionToJitFunction",
        "NopythonRewrites",
        "PreLowerStripPhis",
        "ReconstructSSA",
        "RewriteDynamicRaises",
        "RewriteSemanticConstants",
        "WithLift",
    )
)
"""Passes of numba for what kernels do not have: variables of several types, functions inside,
array expressions, exceptions, parts that depend on the types of arguments."""


class _Typing(Context):
    """numba's typing that remembers which types an operator or function takes and gives."""

    _known: ClassVar[dict[tuple[object, ...], object]] = {}

    @classmethod
    def like(cls, context: Context) -> _Typing:
        """The same context, which goes on to hold everything that is registered."""
        typing = cls.__new__(cls)
        typing.__dict__ = context.__dict__
        return typing

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a call."""
        element = func is operator.getitem and isinstance(args[0], types.Array)
        if kws or not (element or isinstance(func, types.Function)):
            return super().resolve_function_type(func, args, kws)
        # the value of a constant integer makes no difference to the types
        plain = tuple(types.intp if isinstance(a, types.IntegerLiteral) else a for a in args)
        key = func, *plain
        if key not in self._known:
            self._known[key] = super().resolve_function_type(func, plain, kws)
        return self._known[key]

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """The signature of an assignment to an element."""
        key = operator.setitem, target, index, value
        if key not in self._known:
            self._known[key] = super().resolve_setitem(target, index, value)
        return self._known[key]


class _Lower(Lower):
    """Elements of arrays are at their place in C order: no index is negative.

    With NUMBA_BOUNDSCHECK=1 kernels raise IndexError for an index that is negative or too large.
    """

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        address = self._address(value, index)
        if address is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        array = self.typeof(value.name)
        element = load_item(self.context, self.builder, array, address)
        return self.context.cast(self.builder, element, array.dtype, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        address = self._address(target_var, index_var)
        if address is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        array, kind = self.typeof(target_var.name), self.typeof(value_var.name)
        value = self.context.cast(self.builder, self.loadvar(value_var.name), kind, array.dtype)
        return store_item(self.context, self.builder, array, value, address)

    def alloca_lltype(self, name: str, lltype: Any, *_: Any, **__: Any) -> Any:
        """Room for a variable; numba asks for its size too, which only debuggers need."""
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)

    def _address(self, array: Any, index: Any) -> Any:
        """Of the element; None where the index is of another kind than integers for all axes."""
        kind, given = self.typeof(array.name), self.typeof(index.name)
        several = isinstance(given, types.BaseTuple)
        axes = tuple(given) if several else (given,)
        if not isinstance(kind, types.Array) or kind.layout != "C" or len(axes) != kind.ndim:
            return None
        if not all(isinstance(axis, types.Integer) for axis in axes):
            return None
        builder, at = self.builder, self.loadvar(index.name)
        parts, model = self.loadvar(array.name), self.context.data_model_manager[kind]
        shape, place = model.get_field_position("shape"), None
        for n, axis in enumerate(axes):
            own = builder.extract_value(at, n) if several else at
            own = self.context.cast(builder, own, axis, types.intp)
            length = builder.extract_value(parts, [shape, n])
            if self.context.enable_boundscheck:
                cgutils.do_boundscheck(self.context, builder, own, length, n)
            if place is not None:
                own = builder.add(builder.mul(place, length, flags=["nsw"]), own, flags=["nsw"])
            place = own
        data = builder.extract_value(parts, model.get_field_position("data"))
        return builder.gep(data, [place], inbounds=True)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "kernel_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return _Lower


class _EntryLibrary(JITCodeLibrary):
    """Code of a kernel that Python calls, with all kernels that it calls."""

    def _optimize_functions(self, _module: object) -> None:
        """Leave that to the passes over all of the code, which numba runs too."""

    def _optimize_final_module(self) -> None:
        """Optimize all but the entry, which only hands the arguments over."""
        for each in self._final_module.functions:
            if each.name.startswith("_ZN7cpython") and not each.is_declaration:
                each.add_function_attribute("noinline")
                each.add_function_attribute("optnone")
        super()._optimize_final_module()


class _InnerLibrary(JITCodeLibrary):
    """Code of a kernel that only other kernels call: it becomes a part of theirs."""

    def _optimize_final_module(self) -> None:
        """Leave that to the kernels that it becomes a part of."""

    def _finalize_final_module(self) -> None:
        """Keep the code without machine code for it."""
        self._finalize_dynamic_globals()
        self._finalized = True


class EntryCompiler(CompilerBase):
    """Compiles kernels that Python calls."""

    library: type[JITCodeLibrary] = _EntryLibrary

    def define_pipelines(self) -> list[PassManager]:
        """The passes that a kernel goes through, and the library that the last ones fill."""
        state = self.state
        state.typingctx = _Typing.like(state.typingctx)
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        passes = PassManager("kernel")
        for each, words in DefaultPassBuilder.define_nopython_pipeline(state).passes:
            if each.__name__ not in _UNUSED:
                passes.add_pass(_Lowering if each is NativeLowering else each, words)
        passes.finalize()
        return [passes]


class InnerCompiler(EntryCompiler):
    """Compiles kernels that only other kernels call."""

    library = _InnerLibrary

    def define_pipelines(self) -> list[PassManager]:
        """The passes that a kernel goes through."""
        self.state.targetctx.get_executable = _without_machine_code
        return super().define_pipelines()


def _without_machine_code(library: Any, fndesc: Any, env: Any) -> Any:
    """What numba knows the kernel by; nothing calls it."""
    module, name = fndesc.lookup_module(), fndesc.qualname
    return make_function(module, name, "", 0, env, (library,))
