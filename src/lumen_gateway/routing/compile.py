"""Config to Plan, or everything that is wrong with its virtual models.

A plan leaves nothing to look up: names are resolved, overrides folded, conditions compiled, routes and escapes written
into each attempt. `validate.py` and `graph.py` check, `tree.py` follows the references, `generate.py` writes the code.
"""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from lumen_gateway.config.schema import Config, Fault, VirtualModel
from lumen_gateway.routing.generate import flatten, generate
from lumen_gateway.routing.graph import check_graph
from lumen_gateway.routing.plan import Attempt, Entry, Plan, canonical
from lumen_gateway.routing.tree import Grower
from lumen_gateway.routing.validate import check_models


class Compiled(msgspec.Struct, frozen=True):
    """A plan, unless a fault that is no warning stands in the way."""

    plan: Plan | None
    faults: tuple[Fault, ...]


def compile_plan(config: Config) -> Compiled:
    """Compile every callable id of a document whose shape `config` has checked.

    Raises: nothing; what is wrong comes back as faults.
    """
    slices = compile_slices(config)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            compiled: Compiled = done.value
            return compiled


def compile_slices(config: Config) -> Generator[None, None, Compiled]:
    """Do the same one virtual model at a time, for a process that serves requests in between."""
    checked = check_models(config)
    yield
    faults = (*checked.faults, *check_graph(config))
    if not all(fault.warning for fault in faults):
        return Compiled(None, faults)
    entries = _foundation_entries(config)
    grower = Grower(config, checked.conditions)
    for model in config.virtual_models:
        yield
        entries[model.id] = _virtual_entry(model, grower)
    return Compiled(Plan(entries), faults)


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
