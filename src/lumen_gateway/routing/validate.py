"""What can be wrong with a virtual model by itself, and with the targets it names directly. All faults at once.

Shapes, ranges, ids taken twice and pinned keys are checked by `config`; loops and sizes by `graph.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lumen_gateway.config.schema import Config, Fault, Preset, Target, VirtualModel
from lumen_gateway.config.wording import nearest, quoted
from lumen_gateway.routing.conditions import Condition
from lumen_gateway.routing.overrides import check_overrides
from lumen_gateway.routing.plan import canonical
from lumen_gateway.routing.when import parse_when

Path = tuple[str | int, ...]

MAX_PROMPT_BYTES = 32_768


class Checked(msgspec.Struct, frozen=True):
    """What checking found: faults, and the conditions it had to parse on the way, by (virtual model, target)."""

    faults: tuple[Fault, ...]
    conditions: dict[tuple[int, int], Condition]


def check_models(config: Config) -> Checked:
    """Check every virtual model of a document whose shape is right."""
    checker = _Checker(config)
    for index, model in enumerate(config.virtual_models):
        checker.check_model(index, model)
    return Checked(tuple(checker.faults), checker.conditions)


class _Checker:
    """Looks at one virtual model after the other, and no further than its direct targets."""

    def __init__(self, config: Config) -> None:
        self.faults: list[Fault] = []
        self.conditions: dict[tuple[int, int], Condition] = {}
        self._foundation = {model.id: model for _, model in config.models()}
        self._virtual = {model.id: model for model in config.virtual_models}

    def check_model(self, index: int, model: VirtualModel) -> None:
        path: Path = ("virtual_models", index)
        self.faults += _check_counts(model, path)
        self.faults += _check_fallback_on(model, path)
        if model.preset is not None:
            self.faults += _check_preset(model, model.preset, (*path, "preset"))
        for position, target in enumerate(model.targets):
            self.faults += self._check_target(index, position, model, target, (*path, "targets", position))

    def _check_target(
        self, index: int, position: int, model: VirtualModel, target: Target, path: Path
    ) -> Iterator[Fault]:
        capability = canonical(model.capability)
        yield from _check_weight(model, target, path)
        yield from _check_when(model, target, position, path)
        if target.when is not None and model.strategy == "switch":
            condition, faults = parse_when(target.when, capability, (*path, "when"))
            yield from faults
            if condition is not None:
                self.conditions[index, position] = condition
        if target.overrides is not None:
            yield from check_overrides(target.overrides, capability, (*path, "overrides"))
        yield from self._check_reference(capability, target, (*path, "model"))

    def _check_reference(self, capability: str, target: Target, path: Path) -> Iterator[Fault]:
        child = self._virtual.get(target.model)
        if child is not None:
            yield from _check_child(capability, child, path)
            return
        leaf = self._foundation.get(target.model)
        if leaf is None:
            near = nearest(target.model, [*self._foundation, *self._virtual])
            fix = f"did you mean {quoted(near)}?" if near else "declare it under a provider, or as a virtual model"
            yield Fault(path, f"no model has the id {quoted(target.model)}", fix)
        elif capability not in map(canonical, leaf.capabilities):
            served = ", ".join(map(canonical, leaf.capabilities))
            yield Fault(path, f"it serves {served}, not {capability}", f"pick a model that serves {capability}")


def _check_child(capability: str, child: VirtualModel, path: Path) -> Iterator[Fault]:
    served = canonical(child.capability)
    if served != capability:
        yield Fault(path, f"it serves {served}, not {capability}", f"pick a model that serves {capability}")
    if child.preset is not None:
        fix = "requests for its own id still get it; put it on this model if it is meant here"
        yield Fault(path, "its preset is ignored here: only that of the requested id applies", fix, warning=True)
    if child.commit != "first_output":
        fix = f'set commit = "{child.commit}" on this model if it is meant here'
        yield Fault(path, "its commit is ignored here: only that of the requested id applies", fix, warning=True)


def _check_counts(model: VirtualModel, path: Path) -> Iterator[Fault]:
    count = len(model.targets)
    if model.strategy == "single" and count != 1:
        yield Fault((*path, "targets"), f"single takes exactly 1 target, not {count}", "use fallback, split or switch")
    if model.strategy != "single" and count < 2:
        yield Fault((*path, "targets"), f"{model.strategy} takes at least 2 targets, not {count}", "add a target")


def _check_fallback_on(model: VirtualModel, path: Path) -> Iterator[Fault]:
    if model.fallback_on is None:
        return
    where = (*path, "fallback_on")
    if model.strategy not in ("fallback", "split"):
        fix = "remove it; put it on the fallback or split that has a next target"
        yield Fault(where, f"fallback_on belongs to fallback and split, not to {model.strategy}", fix)
    elif not model.fallback_on:
        yield Fault(where, "fallback_on is empty, so nothing would ever go on", "name a trigger, or remove it")


def _check_preset(model: VirtualModel, preset: Preset, path: Path) -> Iterator[Fault]:
    capability = canonical(model.capability)
    if capability != "chat":
        yield Fault(path, f"a preset is for chat, not for {capability}", "remove it")
        return
    if preset.system_prompt is None and preset.overrides is None:
        yield Fault(path, "the preset does nothing", "give it a system_prompt or overrides, or remove it")
    if preset.system_prompt is not None:
        size_bytes = len(preset.system_prompt.encode())
        if size_bytes > MAX_PROMPT_BYTES:
            message = f"the system prompt has {size_bytes} bytes; the limit is {MAX_PROMPT_BYTES}"
            yield Fault((*path, "system_prompt"), message, "shorten it")
    if preset.overrides is not None:
        yield from check_overrides(preset.overrides, capability, (*path, "overrides"))


def _check_weight(model: VirtualModel, target: Target, path: Path) -> Iterator[Fault]:
    if model.strategy == "split" and target.weight is None:
        yield Fault((*path, "weight"), "is missing: every target of a split needs one", "add weight = 1")
    if model.strategy != "split" and target.weight is not None:
        yield Fault((*path, "weight"), f"weight belongs to split, not to {model.strategy}", "remove it")


def _check_when(model: VirtualModel, target: Target, position: int, path: Path) -> Iterator[Fault]:
    last = position == len(model.targets) - 1
    if model.strategy != "switch":
        if target.when is not None:
            yield Fault((*path, "when"), f"when belongs to switch, not to {model.strategy}", "remove it")
    elif last and target.when is not None:
        fix = "remove it, or add a target without when behind it"
        yield Fault((*path, "when"), "the last target of a switch is its default and has no when", fix)
    elif not last and target.when is None:
        wrong = "is missing: rules behind a target without it are never reached"
        yield Fault((*path, "when"), wrong, "add it, or make this the last target")
