"""The tree behind a virtual model: references followed, overrides folded, escapes and routes written into every leaf.

One tree per requested id, because a leaf reached on two ways has two routes and two sets of edits. `generate.py` turns
the tree into code; only documents found sound by `validate.py` come here, so every name resolves and nothing is deep.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from itertools import accumulate
from typing import ClassVar, NamedTuple

import msgspec

from lumen_gateway.config.schema import Config, Overrides, Provider, Target, VirtualModel
from lumen_gateway.errors import DEFAULT_TRIGGERS, TRIGGERS, Trigger
from lumen_gateway.routing.conditions import Condition
from lumen_gateway.routing.overrides import fold
from lumen_gateway.routing.plan import Attempt, Escape


class Leaf(msgspec.Struct, frozen=True):
    """A foundation model. `level` counts the fallbacks and splits around it."""

    attempt: Attempt
    level: int
    fixed: ClassVar[bool] = True

    @property
    def id(self) -> str:
        """The foundation model's id."""
        return self.attempt.leaf


class Chain(msgspec.Struct, frozen=True):
    """A fallback: its parts one after the other. `fixed` nodes answer every request alike."""

    id: str
    level: int
    parts: tuple[Node, ...]
    fixed: bool


class Draw(msgspec.Struct, frozen=True):
    """A split: one part drawn by weight, then the others, heavy ones first."""

    id: str
    level: int
    parts: tuple[Node, ...]
    weights: tuple[int, ...]
    fixed: ClassVar[bool] = False

    def pick(self, drawn: float) -> int:
        """Return the part that a draw in [0, 1) falls on: ranges by weight, in declaration order."""
        return bisect(tuple(accumulate(self.weights))[:-1], drawn * sum(self.weights))

    def order(self, first: int) -> list[int]:
        """Return the parts in the order they are tried once `first` is drawn."""
        rest = sorted((i for i in range(len(self.parts)) if i != first), key=lambda i: -self.weights[i])
        return [first, *rest]


class Rules(msgspec.Struct, frozen=True):
    """A switch: the part of the first condition that holds. The last part has none."""

    id: str
    level: int
    parts: tuple[Node, ...]
    conditions: tuple[Condition, ...]
    fixed: ClassVar[bool] = False


Node = Leaf | Chain | Draw | Rules


def triggers_of(model: VirtualModel) -> Trigger:
    """Return the failures on which a fallback or split goes on."""
    if model.fallback_on is None:
        return DEFAULT_TRIGGERS
    mask = Trigger.NONE
    for name in model.fallback_on:
        mask |= TRIGGERS[name]
    return mask


class _Way(NamedTuple):
    """What lies between the requested id and a target."""

    route: str
    overrides: tuple[Overrides, ...]  # outermost first
    escapes: tuple[Escape, ...]  # innermost first
    level: int

    def within(self, escape: Escape) -> _Way:
        """Step into a target that has a next one."""
        return self._replace(escapes=(escape, *self.escapes), level=self.level + 1)

    def within_last(self) -> _Way:
        """Step into a target after which there is nothing on this level."""
        return self._replace(level=self.level + 1)


class Grower:
    """Grows the trees of one document."""

    def __init__(self, config: Config, conditions: Mapping[tuple[int, int], Condition]) -> None:
        self._providers: dict[str, Provider] = {model.id: provider for provider, model in config.models()}
        self._virtual = {model.id: (index, model) for index, model in enumerate(config.virtual_models)}
        self._conditions = conditions  # (virtual model, target) -> parsed `when`

    def grow(self, model_id: str) -> Node:
        """Return the tree of one requested virtual model; the overrides of its preset are the outermost level."""
        _, model = self._virtual[model_id]
        outermost = model.preset.overrides if model.preset is not None else None
        return self._model(model_id, _Way(model_id, () if outermost is None else (outermost,), (), 0))

    def _model(self, model_id: str, way: _Way) -> Node:
        index, model = self._virtual[model_id]
        match model.strategy:
            case "single":
                return self._target(model.targets[0], way)
            case "fallback":
                return self._chain(model, way)
            case "split":
                return self._draw(model, way)
            case "switch":
                parts = tuple(self._target(target, way) for target in model.targets)
                conditions = tuple(self._conditions[index, i] for i in range(len(parts) - 1))
                return Rules(model_id, way.level, parts, conditions)

    def _chain(self, model: VirtualModel, way: _Way) -> Chain:
        inside = way.within(Escape(triggers_of(model), way.level))
        parts = [self._target(target, inside) for target in model.targets[:-1]]
        parts.append(self._target(model.targets[-1], way.within_last()))
        return Chain(model.id, way.level, tuple(parts), all(part.fixed for part in parts))

    def _draw(self, model: VirtualModel, way: _Way) -> Draw:
        """Any target of a split may be tried last; there its escape finds nothing and the outer ones take over."""
        inside = way.within(Escape(triggers_of(model), way.level))
        parts = tuple(self._target(target, inside) for target in model.targets)
        return Draw(model.id, way.level, parts, tuple(target.weight or 0 for target in model.targets))

    def _target(self, target: Target, way: _Way) -> Node:
        overrides = way.overrides if target.overrides is None else (*way.overrides, target.overrides)
        onward = way._replace(route=f"{way.route}>{target.model}", overrides=overrides)
        if target.model in self._virtual:
            return self._model(target.model, onward)
        provider = self._providers[target.model]
        attempt = Attempt(target.model, provider.name, target.key, fold(overrides), onward.route, onward.escapes)
        return Leaf(attempt, way.level)
