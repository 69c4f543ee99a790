"""Trees written as Python: an expression for whatever is joined or drawn, a function for each choice inside it.

The code only picks and joins: every run of attempts that can be known at load is a prebuilt tuple. Names and comments
are the only text in it that comes from the document, as plain identifiers and printable comments; values are bound
through the namespace, so nothing an operator wrote is ever evaluated.

Where a node stands among its siblings decides what its first attempt `opens`: 0 the whole list, n+1 a target of level n
(`plan.py` keeps that as a bit mask). Below a split this is known only after the draw, so functions there take it as an
argument and their tuples come in one variant for each value.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from types import FunctionType
from typing import Any

import msgspec

from lumen_gateway.routing.conditions import Matcher, describe, emit
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.plan import Attempt
from lumen_gateway.routing.tree import Chain, Draw, Leaf, Node, Rules

Choose = Callable[[Facts, Callable[[], float]], tuple[Attempt, ...]]

_PREFIXES: dict[type, str] = {str: "text", float: "number", Matcher: "matches"}
_MAX_NOTED = 6  # parts a comment names


def flatten(node: Node, opens: int = 0) -> tuple[Attempt, ...]:
    """Return the attempts of a fixed node, the first of which opens a target of level `opens - 1`."""
    if isinstance(node, Leaf):
        return (msgspec.structs.replace(node.attempt, starts=1 << opens - 1) if opens else node.attempt,)
    assert isinstance(node, Chain)
    first, *rest = node.parts
    return flatten(first, opens) + tuple(each for part in rest for each in flatten(part, node.level + 1))


def generate(node: Node) -> tuple[str, Choose]:
    """Return the source of a node that depends on the request, and its function."""
    writer = _Writer()
    writer.function(node, 0, "choose")
    source = "\n\n".join(writer.functions) + "\n"
    code = compile(source, f"<virtual model {_printable(node.id)}>", "exec", dont_inherit=True)
    exec(code, writer.namespace)  # noqa: S102 - our own code: the document's values are only bound by name
    choose: Choose = writer.namespace.pop("choose")  # else it would hold itself, and outlive its plan
    return source, choose


class _Writer:
    """Collects functions and the values they name."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.namespace: dict[str, Any] = {"bisect": bisect}

    def bind(self, value: object) -> str:
        """Return the name a value has in the code."""
        if isinstance(value, FunctionType):
            self.namespace[value.__name__] = value
            return value.__name__
        return self._bind(_PREFIXES.get(type(value), "values"), value)

    def _bind(self, prefix: str, value: object) -> str:
        name = f"{prefix}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def function(self, node: Node, opens: int | str, name: str) -> None:
        """Write the function of one node; one that gets `opens` as an argument calls it just that."""
        place = len(self.functions)
        self.functions.append("")
        argument = ", opens" if isinstance(opens, str) else ""
        match node:
            case Rules():
                body = self._rules(node, opens)
            case Draw() if not _is_flat(node):
                body = self._drawn_parts(node, opens)
            case _:
                body = [f"return {self._part(node, opens)}"]
        head = f"def {name}(facts, draw{argument}):  # {_noted(node)}"
        self.functions[place] = "\n    ".join([head, *body])

    def _rules(self, node: Rules, opens: int | str) -> list[str]:
        lines: list[str] = []
        for condition, part in zip(node.conditions, node.parts, strict=False):
            lines.append(f"# {_printable(describe(condition))}")
            lines.append(f"if {emit(condition, self.bind)}:")
            lines.append(f"    return {self._part(part, opens)}  # {_noted(part)}")
        return [*lines, f"return {self._part(node.parts[-1], opens)}  # {_noted(node.parts[-1])}"]

    def _drawn_parts(self, node: Draw, opens: int | str) -> list[str]:
        lines = [f"first = {self._drawn(node)}"]
        for index, part in enumerate(node.parts):
            here = f"{opens} if first == {index} else {node.level + 1}"
            lines.append(f"part_{index} = {self._part(part, here)}  # {_noted(part)}")
        orders = [" + ".join(f"part_{each}" for each in node.order(index)) for index in range(len(node.parts))]
        for index, order in enumerate(orders[:-1]):
            lines += [f"if first == {index}:", f"    return {order}"]
        return [*lines, f"return {orders[-1]}"]

    def _part(self, part: Node, opens: int | str) -> str:
        """Return the expression of a part's attempts: written out, or as a call where it takes statements."""
        match part:
            case _ if part.fixed:
                return self._variants("tries", opens, part.level, lambda each: flatten(part, each))
            case Chain():
                return self._joined(part, opens)
            case Draw() if _is_flat(part):
                orders = self._variants("orders", opens, part.level, lambda each: _orders(part, each))
                return f"{orders}[{self._drawn(part)}]"
            case _:
                name = self._bind(re.sub(r"\W", "_", f"in_{part.id}", flags=re.ASCII)[:40], None)
                self.function(part, opens if isinstance(opens, int) else "opens", name)
                return f"{name}(facts, draw)" if isinstance(opens, int) else f"{name}(facts, draw, {opens})"

    def _variants(self, prefix: str, opens: int | str, level: int, build: Callable[[int], object]) -> str:
        """Bind what depends on `opens`: as it is, or where that is not known yet one for each value."""
        if isinstance(opens, int):
            return self._bind(prefix, build(opens))
        return self._bind(prefix, tuple(build(each) for each in range(level + 1))) + f"[{opens}]"

    def _drawn(self, node: Draw) -> str:
        edges = self._bind("edges", tuple(accumulate(node.weights))[:-1])
        return f"bisect({edges}, draw() * {sum(node.weights)})"

    def _joined(self, node: Chain, opens: int | str) -> str:
        """Write a fallback's parts one after the other, fixed neighbours as one tuple."""
        terms: list[str] = []
        run: tuple[Attempt, ...] = ()
        for index, part in enumerate(node.parts):
            here = node.level + 1 if index else opens
            if part.fixed and isinstance(here, int):
                run += flatten(part, here)
                continue
            terms += [self._bind("tries", run)] if run else []
            terms.append(self._part(part, here))
            run = ()
        return " + ".join([*terms, self._bind("tries", run)] if run else terms)


def _is_flat(node: Draw) -> bool:
    """Whether each draw has one outcome, which can be bound whole."""
    return all(part.fixed for part in node.parts)


def _orders(node: Draw, opens: int) -> tuple[tuple[Attempt, ...], ...]:
    first = [flatten(part, opens) for part in node.parts]
    later = [flatten(part, node.level + 1) for part in node.parts]
    return tuple(
        first[drawn] + tuple(each for index in node.order(drawn)[1:] for each in later[index])
        for drawn in range(len(node.parts))
    )


def _noted(node: Node) -> str:
    """Return a node in one line: `id(first, second)`, a split with its weights."""
    match node:
        case Leaf():
            return _printable(node.id)
        case Draw():
            shares = zip(node.weights, node.parts, strict=True)
            inner = [f"{weight} {_printable(part.id)}" for weight, part in shares]
        case _:
            inner = [_printable(part.id) for part in node.parts]
    more = [f"and {len(inner) - _MAX_NOTED} more"] if len(inner) > _MAX_NOTED else []
    return f"{_printable(node.id)}({', '.join(inner[:_MAX_NOTED] + more)})"


def _printable(text: str) -> str:
    """Return text that cannot leave the comment it is put into."""
    return text if text.isprintable() else ascii(text)
