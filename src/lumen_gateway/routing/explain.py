"""Why a request goes where it goes: the choices made on the way, in words.

Walks the same tree the compiler wrote its code from, and draws in the same order, so that the attempts of the compiled
plan and the reasons given here belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lumen_gateway.routing.conditions import describe, holds, why_not
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.tree import Chain, Draw, Leaf, Node, Rules


class Reason(NamedTuple):
    """One thing that decided. `depth` counts the choices it lies inside of."""

    depth: int
    model_id: str
    text: str


def explain(node: Node, facts: Facts, draw: Callable[[], float], depth: int = 0) -> Iterator[Reason]:
    """Yield why a request with these facts and draws gets the attempts it gets, outermost choice first."""
    match node:
        case Leaf():
            return
        case Chain():
            for part in node.parts:
                yield from explain(part, facts, draw, depth)
        case Draw():
            yield Reason(depth, node.id, _drawn(node, draw()))
            for part in node.parts:
                yield from explain(part, facts, draw, depth + 1)
        case Rules():
            yield from _ruled(node, facts, draw, depth)


def _drawn(node: Draw, drawn: float) -> str:
    first, *rest = [node.parts[index].id for index in node.order(node.pick(drawn))]
    total = sum(node.weights)
    return f"drew {drawn:.3f} of 1, {drawn * total:.1f} of {total}: {first} first, then {', '.join(rest)}"


def _ruled(node: Rules, facts: Facts, draw: Callable[[], float], depth: int) -> Iterator[Reason]:
    for number, (condition, part) in enumerate(zip(node.conditions, node.parts, strict=False), 1):
        if holds(condition, facts):
            yield Reason(depth, node.id, f"rule {number} holds ({describe(condition)}): {part.id}")
            yield from explain(part, facts, draw, depth + 1)
            return
        yield Reason(
            depth, node.id, f"rule {number} does not hold ({describe(condition)}): {why_not(condition, facts)}"
        )
    yield Reason(depth, node.id, f"no rule holds: the default, {node.parts[-1].id}")
    yield from explain(node.parts[-1], facts, draw, depth + 1)
