"""The slow, obvious interpreter of virtual models: what the compiled plan is compared with.

Written from the words of `docs/virtual-models.md`, straight from the document, and sharing nothing with the compiler
but the reading of conditions. Only tests use it. Escapes are indexes here, so that the levels of `plan.py` have
something to be measured against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lumen_gateway.config.schema import Config, Overrides, Target, VirtualModel
from lumen_gateway.errors import DEFAULT_TRIGGERS, TRIGGERS, Trigger
from lumen_gateway.routing.conditions import holds
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.when import parse_when


class Step(msgspec.Struct, frozen=True):
    """One attempt. An escape is a set of triggers and the index of the step it leads to, innermost first."""

    leaf: str
    key: str | None
    levels: tuple[Overrides, ...]  # outermost first
    route: str | None
    escapes: tuple[tuple[Trigger, int], ...]


def interpret(config: Config, model_id: str, facts: Facts, draw: Callable[[], float]) -> list[Step]:
    """Return the steps a request for `model_id` may make, in order."""
    return _Interpreter(config, facts, draw).requested(model_id)


def follow(steps: Sequence[Step], index: int, trigger: Trigger) -> int | None:
    """Return where a failure goes on: along the first escape whose set contains it."""
    for triggers, target in steps[index].escapes:
        if trigger & triggers:
            return target
    return None


def surviving(steps: Sequence[Step], dropped: Callable[[int], bool]) -> list[Step]:
    """Return the steps that stay, with escapes rewired to the next step that stays."""
    kept = [index for index in range(len(steps)) if not dropped(index)]

    def rewired(step: Step) -> tuple[tuple[Trigger, int], ...]:
        moved = []
        for triggers, target in step.escapes:
            later = [position for position, index in enumerate(kept) if index >= target]
            if later:
                moved.append((triggers, later[0]))
        return tuple(moved)

    return [msgspec.structs.replace(steps[index], escapes=rewired(steps[index])) for index in kept]


class _Interpreter:
    def __init__(self, config: Config, facts: Facts, draw: Callable[[], float]) -> None:
        self._virtual = {model.id: model for model in config.virtual_models}
        self._facts = facts
        self._draw = draw

    def requested(self, model_id: str) -> list[Step]:
        model = self._virtual.get(model_id)
        if model is None:
            return [Step(model_id, None, (), None, ())]
        preset = model.preset.overrides if model.preset is not None else None
        return self._model(model, model_id, () if preset is None else (preset,))

    def _model(self, model: VirtualModel, route: str, levels: tuple[Overrides, ...]) -> list[Step]:
        match model.strategy:
            case "single":
                return self._target(model.targets[0], route, levels)
            case "switch":
                return self._target(self._chosen(model), route, levels)
            case "fallback":
                return _in_order([self._target(target, route, levels) for target in model.targets], model)
            case "split":
                first = self._drawn(model)
                groups = [self._target(target, route, levels) for target in model.targets]
                rest = [index for index in range(len(groups)) if index != first]
                rest.sort(key=lambda index: model.targets[index].weight or 0, reverse=True)  # stable: ties as declared
                return _in_order([groups[index] for index in (first, *rest)], model)

    def _chosen(self, model: VirtualModel) -> Target:
        for target in model.targets:
            if target.when is None:
                return target
            condition, _ = parse_when(target.when, model.capability, ())
            assert condition is not None
            if holds(condition, self._facts):
                return target
        raise AssertionError("the last target of a switch has no condition")

    def _drawn(self, model: VirtualModel) -> int:
        weights = [target.weight or 0 for target in model.targets]
        point = self._draw() * sum(weights)
        for index in range(len(weights)):
            if point < sum(weights[: index + 1]):
                return index
        return len(weights) - 1

    def _target(self, target: Target, route: str, levels: tuple[Overrides, ...]) -> list[Step]:
        if target.overrides is not None:
            levels = (*levels, target.overrides)
        route = f"{route}>{target.model}"
        child = self._virtual.get(target.model)
        if child is not None:
            return self._model(child, route, levels)
        return [Step(target.model, target.key, levels, route, ())]


def _in_order(groups: list[list[Step]], model: VirtualModel) -> list[Step]:
    """Put the steps of each target one behind the other; each but the last escapes to the first step of the next."""
    triggers = DEFAULT_TRIGGERS
    if model.fallback_on is not None:
        triggers = Trigger(sum(TRIGGERS[name] for name in set(model.fallback_on) - {"any_error"}))
        if "any_error" in model.fallback_on:
            triggers = TRIGGERS["any_error"]
    steps: list[Step] = []
    for number, group in enumerate(groups):
        start = len(steps)
        ways_out = ((triggers, start + len(group)),) if number < len(groups) - 1 else ()
        for step in group:
            shifted = tuple((inner, start + target) for inner, target in step.escapes)
            steps.append(msgspec.structs.replace(step, escapes=shifted + ways_out))
    return steps
