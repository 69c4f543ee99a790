"""Config to Plan, or everything that is wrong with its virtual models.

A plan leaves nothing to look up: names are resolved, overrides folded, conditions compiled, routes and escapes written
into each attempt. `validate.py` and `graph.py` check, `tree.py` follows the references, `generate.py` writes the code.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

import msgspec

from lumen_gateway.config.schema import Config, Fault, VirtualModel
from lumen_gateway.routing.conditions import Condition
from lumen_gateway.routing.generate import flatten, generate
from lumen_gateway.routing.graph import check_graph
from lumen_gateway.routing.plan import Attempt, Entry, Plan, canonical
from lumen_gateway.routing.tree import Grower
from lumen_gateway.routing.validate import check_models
from lumen_gateway.routing.when import parse_when


class Compiled(msgspec.Struct, frozen=True):
    """A plan, unless a fault that is no warning stands in the way."""

    plan: Plan | None
    faults: tuple[Fault, ...]


def compile_plan(config: Config) -> Compiled:
    """Compile every callable id of a document whose shape `config` has checked.

    Raises: nothing; what is wrong comes back as faults.
    """
    checked = check_models(config)
    faults = (*checked.faults, *check_graph(config))
    if not all(fault.warning for fault in faults):
        return Compiled(None, faults)
    slices = _build(config, checked.conditions)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            plan: Plan = done.value
            return Compiled(plan, faults)


def compile_slices(config: Config) -> Generator[None, None, Plan]:
    """Compile a document that `compile_plan` has passed, one virtual model at a time, to serve requests in between."""
    return _build(config, _Conditions(config))


def _build(config: Config, conditions: Mapping[tuple[int, int], Condition]) -> Generator[None, None, Plan]:
    entries = _foundation_entries(config)
    grower = Grower(config, conditions)
    for model in config.virtual_models:
        yield
        entries[model.id] = _virtual_entry(model, grower)
    return Plan(entries)


class _Conditions(dict[tuple[int, int], Condition]):
    """Conditions of a sound document by (virtual model, target), parsed when they are first asked for."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._models = config.virtual_models

    def __missing__(self, place: tuple[int, int]) -> Condition:
        index, position = place
        model = self._models[index]
        when = model.targets[position].when
        assert when is not None, "only a switch asks, and not for its default"
        condition, _ = parse_when(when, canonical(model.capability), ())
        assert condition is not None, "the document was found sound"
        self[place] = condition
        return condition


def _foundation_entries(config: Config) -> dict[str, Entry]:
    return {
        model.id: Entry(
            id=model.id,
            capabilities=frozenset(map(canonical, model.capabilities)),
            virtual=False,
            fixed=(Attempt(model.id, provider.name),),
        )
        for provider, model in config.models()
    }


def _virtual_entry(model: VirtualModel, grower: Grower) -> Entry:
    node = grower.grow(model.id)
    source, choose = ("", None) if node.fixed else generate(node)
    return Entry(
        id=model.id,
        capabilities=frozenset({canonical(model.capability)}),
        virtual=True,
        fixed=flatten(node) if node.fixed else None,
        choose=choose,
        source=source,
        preset=model.preset,
        commit=model.commit,
    )
