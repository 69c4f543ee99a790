"""Trees written as Python: one function for each virtual model on the way that depends on the request.

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
from collections.abc import Callable, Iterator
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
_MAX_NOTED = 6  # leaves a comment names


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
    choose: Choose = writer.namespace["choose"]
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
                kind, body = "switch", self._rules(node, opens)
            case Draw():
                kind, body = "split", self._draw(node, opens)
            case Chain():
                kind, body = "fallback", [f"return {self._joined(node, opens)}"]
            case Leaf():
                raise AssertionError("a leaf is fixed")
        head = f"def {name}(facts, draw{argument}):  # {kind} {_printable(node.id)}"
        self.functions[place] = "\n    ".join([head, *body])

    def _rules(self, node: Rules, opens: int | str) -> list[str]:
        lines: list[str] = []
        for condition, part in zip(node.conditions, node.parts, strict=False):
            lines.append(f"# {_printable(describe(condition))}")
            lines.append(f"if {emit(condition, self.bind)}:")
            lines.append(f"    return {self._part(part, opens)}  # {_noted(part)}")
        return [*lines, f"return {self._part(node.parts[-1], opens)}  # {_noted(node.parts[-1])}"]

    def _draw(self, node: Draw, opens: int | str) -> list[str]:
        edges = self._bind("edges", tuple(accumulate(node.weights))[:-1])
        shares = zip(node.weights, node.parts, strict=True)
        note = "# " + ", ".join(f"{weight} {_printable(part.id)}" for weight, part in shares)
        drawn = f"bisect({edges}, draw() * {sum(node.weights)})"
        if all(part.fixed for part in node.parts):
            return [note, f"return {self._orders(node, opens)}[{drawn}]"]
        return [note, f"first = {drawn}", *self._drawn_parts(node, opens)]

    def _orders(self, node: Draw, opens: int | str) -> str:
        """Bind the whole outcome of every draw."""
        if isinstance(opens, int):
            return self._bind("orders", _orders(node, opens))
        return self._bind("orders", tuple(_orders(node, each) for each in range(node.level + 1))) + f"[{opens}]"

    def _drawn_parts(self, node: Draw, opens: int | str) -> list[str]:
        lines: list[str] = []
        for index, part in enumerate(node.parts):
            here = f"{opens} if first == {index} else {node.level + 1}"
            lines.append(f"part_{index} = {self._part(part, here)}  # {_noted(part)}")
        orders = [" + ".join(f"part_{each}" for each in node.order(index)) for index in range(len(node.parts))]
        for index, order in enumerate(orders[:-1]):
            lines += [f"if first == {index}:", f"    return {order}"]
        return [*lines, f"return {orders[-1]}"]

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

    def _part(self, part: Node, opens: int | str) -> str:
        """Return the expression of a part's attempts."""
        if part.fixed:
            if isinstance(opens, int):
                return self._bind("tries", flatten(part, opens))
            return self._bind("tries", tuple(flatten(part, each) for each in range(part.level + 1))) + f"[{opens}]"
        name = self._bind(re.sub(r"\W", "_", f"in_{part.id}", flags=re.ASCII)[:40], None)
        self.function(part, opens if isinstance(opens, int) else "opens", name)
        return f"{name}(facts, draw)" if isinstance(opens, int) else f"{name}(facts, draw, {opens})"


def _orders(node: Draw, opens: int) -> tuple[tuple[Attempt, ...], ...]:
    first = [flatten(part, opens) for part in node.parts]
    later = [flatten(part, node.level + 1) for part in node.parts]
    return tuple(
        first[drawn] + tuple(each for index in node.order(drawn)[1:] for each in later[index])
        for drawn in range(len(node.parts))
    )


def _noted(part: Node) -> str:
    if not part.fixed:
        return _printable(part.id)
    leaves = list(_leaves(part))
    more = f" and {len(leaves) - _MAX_NOTED} more" if len(leaves) > _MAX_NOTED else ""
    return _printable(", ".join(leaves[:_MAX_NOTED]) + more)


def _leaves(part: Node) -> Iterator[str]:
    if isinstance(part, Leaf):
        yield part.id
    else:
        for each in part.parts:
            yield from _leaves(each)


def _printable(text: str) -> str:
    """Return text that cannot leave the comment it is put into."""
    return text if text.isprintable() else ascii(text)
