"""What can be wrong with virtual models taken together: loops, and trees that are too deep or too large.

Nothing here recurses: a document may chain thousands of models before anyone tells it that eight is the limit. Counts
saturate, since references multiply. A limit crossed inside a model is not reported again for the models around it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lumen_gateway.config.schema import Config, Fault
from lumen_gateway.routing.plan import MAX_ATTEMPTS, MAX_DEPTH

MAX_SIZE = 20_000  # targets in the tree of one id, shared parts counted each time they are reached
MAX_TOTAL_SIZE = 200_000  # the same over all ids: a few seconds of compiling

_SATURATED = 1_000_000
_MAX_LOOPS = 20  # reported of one document
_MAX_SPELLED = 10  # ids in a path that a message spells out
_SHARE_LESS = "use fewer rules, or point fewer of them at models that are large themselves"


class _Measure(msgspec.Struct, frozen=True):
    """How much a virtual model comes to with all it refers to. `deepest` is the child that gives it its depth."""

    depth: int
    attempts: int
    size: int
    deepest: int | None = None


_LEAF = _Measure(0, 1, 1)


def check_graph(config: Config) -> Iterator[Fault]:
    """Yield loops, then the limits crossed by models that lead into none."""
    graph = _Graph(config)
    order, loops = graph.walk()
    for loop in loops:
        yield graph.loop_fault(loop)
    yield from graph.check_limits(order)


class _Graph:
    """Virtual models as numbers, references between them as edges (target position -> number)."""

    def __init__(self, config: Config) -> None:
        self._models = config.virtual_models
        index = {model.id: number for number, model in enumerate(self._models)}
        self._edges = [
            {position: index[target.model] for position, target in enumerate(model.targets) if target.model in index}
            for model in self._models
        ]
        self._measures: dict[int, _Measure] = {}

    def walk(self) -> tuple[list[int], list[list[int]]]:
        """Return every model, inner ones first, and the loops met on the way."""
        order: list[int] = []
        loops: list[list[int]] = []
        seen: set[int] = set()
        for root in range(len(self._models)):
            way = {} if root in seen else {root: iter(self._edges[root].values())}  # open models, children still to see
            seen.add(root)
            while way:
                number = next(reversed(way))
                child = next(way[number], None)
                if child is None:
                    order.append(way.popitem()[0])
                elif child in way and len(loops) < _MAX_LOOPS:
                    opened = list(way)
                    loops.append(opened[opened.index(child) :])
                elif child not in seen:
                    seen.add(child)
                    way[child] = iter(self._edges[child].values())
        return order, loops

    def loop_fault(self, loop: list[int]) -> Fault:
        """Return the fault of one loop, on the model of it that is declared first."""
        turn = loop.index(min(loop))
        turned = [*loop[turn:], *loop[:turn], loop[turn]]
        position = next(position for position, child in self._edges[turned[0]].items() if child == turned[1])
        message = f"leads back to its own virtual model: {self._spelled(turned)}"
        return Fault(("virtual_models", turned[0], "targets", position, "model"), message, "point it at another model")

    def check_limits(self, order: list[int]) -> Iterator[Fault]:
        """Measure every model that leads into no loop, inner ones first."""
        total = 0
        for number in order:
            children = self._edges[number].values()
            if not all(child in self._measures for child in children):
                continue  # it leads into a loop
            measure = self._measures[number] = self._measure(number)
            yield from self._crossed(number, measure)
            if measure.size > MAX_SIZE:
                continue
            total += measure.size
            if total > MAX_TOTAL_SIZE >= total - measure.size:
                message = f"the trees of this document have more than {MAX_TOTAL_SIZE} targets, references followed"
                yield self._fault(number, message, _SHARE_LESS)

    def _measure(self, number: int) -> _Measure:
        model, edges = self._models[number], self._edges[number]
        parts = [self._measures[edges[i]] if i in edges else _LEAF for i in range(len(model.targets))]
        attempts = [part.attempts for part in parts]
        most = max(attempts, default=0) if model.strategy == "switch" else sum(attempts)
        size = sum(part.size for part in parts)
        deepest = max(edges.values(), key=lambda child: self._measures[child].depth, default=None)
        depth = 1 + max((part.depth for part in parts), default=0)
        return _Measure(depth, min(most, _SATURATED), min(size, _SATURATED), deepest)

    def _crossed(self, number: int, measure: _Measure) -> Iterator[Fault]:
        inner = [self._measures[child] for child in self._edges[number].values()]
        if measure.depth == MAX_DEPTH + 1:
            message = f"{measure.depth} virtual models deep ({self._spelled(self._way_down(number))})"
            yield self._fault(number, f"{message}; the limit is {MAX_DEPTH}", "flatten it")
        if measure.attempts > MAX_ATTEMPTS >= max((part.attempts for part in inner), default=0):
            message = f"one request may come to {_counted(measure.attempts)} attempts; the limit is {MAX_ATTEMPTS}"
            yield self._fault(number, message, "use fewer targets, or models with fewer targets inside")
        if measure.size > MAX_SIZE >= max((part.size for part in inner), default=0):
            message = f"its tree has {_counted(measure.size)} targets, references followed; the limit is {MAX_SIZE}"
            yield self._fault(number, message, _SHARE_LESS)

    def _way_down(self, number: int) -> list[int]:
        way = [number]
        while (child := self._measures[way[-1]].deepest) is not None:
            way.append(child)
        return way

    def _spelled(self, numbers: list[int]) -> str:
        ids = [self._models[number].id for number in numbers]
        if len(ids) > _MAX_SPELLED:
            ids[_MAX_SPELLED // 2 : -_MAX_SPELLED // 2] = ["..."]
        return " -> ".join(ids)

    def _fault(self, number: int, message: str, fix: str) -> Fault:
        return Fault(("virtual_models", number, "targets"), message, fix)


def _counted(number: int) -> str:
    return f"more than {number - 1}" if number == _SATURATED else str(number)
