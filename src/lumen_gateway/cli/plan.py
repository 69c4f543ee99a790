"""`lumen plan`: what a model id leads to, drawn as a tree; with facts, the attempts of one request and why.

Shows the names of overridden fields and the size of a system prompt, never their text.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from lumen_gateway.config.load import read_document
from lumen_gateway.config.schema import Config, Overrides, Preset, Target, VirtualModel
from lumen_gateway.config.wording import nearest, quoted
from lumen_gateway.errors import PUBLIC_NAMES, TRIGGERS, Trigger
from lumen_gateway.routing.compile import compile_plan
from lumen_gateway.routing.conditions import describe
from lumen_gateway.routing.explain import explain
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.plan import Attempt, Entry, Plan, canonical, next_attempt
from lumen_gateway.routing.tree import Grower, triggers_of
from lumen_gateway.routing.validate import check_models
from lumen_gateway.routing.when import ATTRIBUTES, parse_when

UNBROKEN = 100_000  # columns where the output is no terminal: one line stays one line


@click.command("plan", short_help="Show what a model id leads to.")
@click.argument("model_id", metavar="ID")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="Default: lumen.toml, else config.toml.")
@click.option("--facts", metavar="JSON", help='Facts of a request, such as {"metadata.plan": "pro", "stream": true}.')
@click.option(
    "--draw", "draws", type=click.FloatRange(0, 1, max_open=True), multiple=True, help="Draw of a split; repeatable."
)
@click.option("--source", is_flag=True, help="Print the Python that was generated.")
def command(model_id: str, path: Path | None, facts: str | None, draws: tuple[float, ...], source: bool) -> None:
    """Show what a model id leads to.

    Without --facts: the whole tree, with strategies, conditions, weights and triggers. With --facts: the attempts that
    a request with these facts would make, where each failure leads, and why. Facts carry the names that `when` tables
    use. Splits take the values given with --draw, in order, and random ones behind them.
    """
    config, plan = _compiled(path)
    entry = _entry(plan, model_id)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=UNBROKEN)
    if source:
        click.echo(entry.source or f"# {model_id} answers every request alike: there is nothing to generate.")
    elif facts is None:
        console.print(_Drawing(config).tree(model_id))
    else:
        _show_decision(console, config, entry, _facts(facts), draws)


def _compiled(path: Path | None) -> tuple[Config, Plan]:
    """Return a sound document and its plan, or end with its faults."""
    document = read_document(path, os.environ)
    if document.draft is not None:
        compiled = compile_plan(document.draft)
        document = document.with_faults(compiled.faults)
        if document.config is not None and compiled.plan is not None:
            return document.config, compiled.plan
    for fault in sorted(document.faults, key=document.line):
        if not fault.warning:
            click.echo(document.locate(fault), err=True)
    raise SystemExit(1)


def _entry(plan: Plan, model_id: str) -> Entry:
    entry = plan.find(model_id)
    if entry is None:
        near = nearest(model_id, plan.entries)
        meant = f"; did you mean {quoted(near)}?" if near else ""
        raise click.ClickException(f"no model has the id {quoted(model_id)}{meant}")
    return entry


# --- the tree ---------------------------------------------------------------------------------------------------------


class _Drawing:
    """Draws what an id leads to, straight from the document."""

    def __init__(self, config: Config) -> None:
        self._providers = {model.id: provider.name for provider, model in config.models()}
        self._virtual = {model.id: model for model in config.virtual_models}

    def tree(self, model_id: str) -> Tree:
        root = Tree(Text(self._title(model_id)))
        model = self._virtual.get(model_id)
        if model is not None:
            if model.preset is not None:
                root.add(Text(f"preset: {_preset_words(model.preset)}"))
            self._grow(root, model)
        return root

    def _title(self, model_id: str) -> str:
        model = self._virtual.get(model_id)
        if model is None:
            return f"{model_id}  (provider {self._providers[model_id]})"
        if model.strategy in ("fallback", "split"):
            return f"{model_id}  {model.strategy} on {', '.join(_names(triggers_of(model)))}"
        return f"{model_id}  {model.strategy}"

    def _grow(self, branch: Tree, model: VirtualModel) -> None:
        for target in model.targets:
            words = [*_condition_words(model, target), self._title(target.model), *_target_words(target)]
            inner = branch.add(Text("  ".join(words)))
            child = self._virtual.get(target.model)
            if child is not None:
                self._grow(inner, child)


def _condition_words(model: VirtualModel, target: Target) -> Iterator[str]:
    if target.weight is not None:
        yield f"{target.weight} of {sum(each.weight or 0 for each in model.targets)}:"
    if target.when is not None:
        condition, _ = parse_when(target.when, canonical(model.capability), ())
        assert condition is not None
        yield f"when {describe(condition)}:"
    elif model.strategy == "switch":
        yield "else:"


def _target_words(target: Target) -> Iterator[str]:
    if target.key is not None:
        yield f"key {target.key}"
    if target.overrides is not None:
        yield f"[{_override_words(target.overrides)}]"


def _preset_words(preset: Preset) -> str:
    words = []
    if preset.system_prompt is not None:
        words.append(f"system prompt of {len(preset.system_prompt.encode())} bytes, {preset.system_prompt_mode}")
    if preset.overrides is not None:
        words.append(_override_words(preset.overrides))
    return "; ".join(words)


def _override_words(overrides: Overrides) -> str:
    parts = (("set", overrides.set), ("default", overrides.default), ("drop", overrides.drop))
    return "; ".join(f"{part} {', '.join(fields)}" for part, fields in parts if fields)


def _names(triggers: Trigger) -> list[str]:
    if triggers == TRIGGERS["any_error"]:
        return ["any_error"]
    return [name for name in PUBLIC_NAMES if TRIGGERS[name] & triggers]


# --- one request ------------------------------------------------------------------------------------------------------


def _show_decision(console: Console, config: Config, entry: Entry, facts: Facts, draws: Iterable[float]) -> None:
    drawn = _Draws(draws)
    if entry.virtual:
        tree = Grower(config, check_models(config).conditions).grow(entry.id)
        for reason in explain(tree, facts, drawn.take):
            _say(console, f"{'  ' * reason.depth}{reason.model_id}: {reason.text}")
    attempts = entry.decide(facts, iter(drawn.taken).__next__)
    _say(console, f"{len(attempts)} attempt{'' if len(attempts) == 1 else 's'}:")
    for index, attempt in enumerate(attempts):
        _say(console, f"{index + 1:3}  {_attempt_words(attempt)}")
        for way_out in _ways_out(attempts, index):
            _say(console, f"       {way_out}")


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)


class _Draws:
    """Given draws first, random ones behind them; remembers all that were taken."""

    def __init__(self, given: Iterable[float]) -> None:
        self._source = chain(given, iter(random.random, None))
        self.taken: list[float] = []

    def take(self) -> float:
        self.taken.append(next(self._source))
        return self.taken[-1]


def _attempt_words(attempt: Attempt) -> str:
    key = "" if attempt.key is None else f", key {attempt.key}"
    edits = attempt.edits
    fields = sorted({*edits.set, *edits.default, *edits.drop})
    edited = f"  edits {', '.join(fields)}" if fields else ""
    return f"{attempt.leaf}  (provider {attempt.provider}{key})  {attempt.route or 'direct'}{edited}"


def _ways_out(attempts: tuple[Attempt, ...], index: int) -> Iterator[str]:
    """Yield where failures of one attempt lead, those that lead to the same place together."""
    leads: dict[int, list[str]] = {}
    for name in PUBLIC_NAMES:
        found = next_attempt(attempts, index, TRIGGERS[name])
        if found is not None:
            leads.setdefault(found, []).append(name)
    other = next_attempt(attempts, index, Trigger.OTHER_STATUS)
    if other is not None:
        leads.setdefault(other, []).append("any other error")
    for found, names in sorted(leads.items()):
        yield f"{', '.join(names)} -> {found + 1}"
    if other is None:
        yield "anything else is the answer" if leads else "any failure is the answer"


def _facts(text: str) -> Facts:
    """Read `--facts`: the names of `when` tables; `metadata` and `header` may also be tables of their own."""
    try:
        given = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as exc:
        raise click.UsageError(f"--facts is not a JSON object: {exc}") from exc
    reader = _FactReader()
    for name, value in given.items():
        reader.read(name, value)
    return Facts.of(metadata=reader.metadata, headers=reader.headers, group_names=reader.group_names, **reader.asked)


class _FactReader:
    """Sorts given facts, and refuses what no rule could ask for."""

    def __init__(self) -> None:
        self.metadata: dict[str, str | float | bool] = {}
        self.headers: dict[str, str] = {}
        self.group_names: tuple[str, ...] = ()
        self.asked: dict[str, float | bool] = {}

    def read(self, name: str, value: Any) -> None:
        kind, _, key = name.partition(".")
        if kind in ("metadata", "header") and not key and isinstance(value, dict):
            for inner, held in value.items():
                self.read(f"{kind}.{inner}", held)
        elif kind == "metadata" and key:
            self.metadata[key] = _typed(name, value, (str, int, float, bool), "a string, a number, true or false")
        elif kind == "header" and key:
            self.headers[key.lower()] = _typed(name, value, (str,), "a string")
        elif name == "group":
            self.group_names = (_typed(name, value, (str,), "a string"),)
        elif name in ATTRIBUTES:
            self.asked[name] = self._asked(name, value)
        else:
            near = nearest(name, ATTRIBUTES)
            meant = f"did you mean {quoted(near)}? " if near else ""
            known = ", ".join(ATTRIBUTES)
            raise click.UsageError(f"--facts: unknown fact {quoted(name)}; {meant}known: {known}, metadata.*, header.*")

    @staticmethod
    def _asked(name: str, value: Any) -> float | bool:
        if ATTRIBUTES[name].types == ("bool",):
            return bool(_typed(name, value, (bool,), "true or false"))
        number: float = _typed(name, value, (int, float), "a number")
        return number


def _typed(name: str, value: Any, types: tuple[type, ...], words: str) -> Any:
    if type(value) not in types:
        raise click.UsageError(f"--facts: {quoted(name)} must be {words}")
    return value
