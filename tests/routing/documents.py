"""Documents for the routing tests: written down in TOML, or drawn at random by hypothesis."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import strategies as st

from lumen_gateway.config.schema import Config
from lumen_gateway.errors import TRIGGERS
from lumen_gateway.routing.compile import compile_plan
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.plan import MAX_ATTEMPTS, Entry, Plan

LEAVES = ("a", "b", "c", "d")

PROVIDERS = """
[[providers]]
name = "one"
kind = "openai"
keys = [{ label = "main", api_key_env = "K1" }, { label = "spare", api_key_env = "K2" }]
models = [
  { id = "a", capabilities = ["chat"], modalities = ["text", "image"] },
  { id = "b", capabilities = ["chat"] },
]

[[providers]]
name = "two"
kind = "groq"
models = [
  { id = "c", capabilities = ["chat", "embed"] },
  { id = "d", capabilities = ["chat"] },
  { id = "e", capabilities = ["embed"] },
  { id = "r", capabilities = ["rerank"] },
]
"""


def read(virtual_models: str) -> Config:
    """Return a document of the two providers above and these virtual models."""
    return msgspec.convert(tomllib.loads(PROVIDERS + virtual_models, parse_float=Decimal), Config)


def plan_of(config: Config) -> Plan:
    """Compile a document that has to be sound."""
    compiled = compile_plan(config)
    assert compiled.plan is not None, compiled.faults
    return compiled.plan


def entry_of(virtual_models: str, model_id: str) -> Entry:
    """Compile these virtual models and return one entry."""
    entry = plan_of(read(virtual_models)).find(model_id)
    assert entry is not None
    return entry


def virtual(model_id: str, strategy: str, *targets: str | dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a virtual chat model as a TOML reader would."""
    listed = [{"model": target} if isinstance(target, str) else target for target in targets]
    return {"id": model_id, "capability": "chat", "strategy": strategy, "targets": listed, **fields}


def config_of(*virtual_models: dict[str, Any]) -> Config:
    """Return a document of the two providers above and these virtual models."""
    document = tomllib.loads(PROVIDERS) | {"virtual_models": list(virtual_models)}
    return msgspec.convert(document, Config)


# --- random documents -------------------------------------------------------------------------------------------------

_SCALARS = st.sampled_from(["pro", "free", "", 0, 1, 1.5, True, False])
_NUMBERS = st.sampled_from([0, 1, 1.5, 2])
_METADATA = st.one_of(
    _SCALARS,
    _SCALARS.map(lambda value: {"ne": value}),
    st.lists(_SCALARS, min_size=1, max_size=3).map(lambda values: {"in": values}),
    st.tuples(st.sampled_from(["gt", "gte", "lt", "lte"]), _NUMBERS).map(lambda pair: {pair[0]: pair[1]}),
    st.sampled_from(["^pro$", "r", "(fr|x)ee", ""]).map(lambda pattern: {"regex": pattern}),
)
_TEXTS = st.sampled_from(["x", "y"])
_TEXT_TESTS = st.one_of(
    _TEXTS,
    _TEXTS.map(lambda value: {"ne": value}),
    st.lists(_TEXTS, min_size=1, max_size=2).map(lambda values: {"in": values}),
    st.sampled_from(["^x", "[xy]"]).map(lambda pattern: {"regex": pattern}),
)
_FLAGS = st.one_of(st.booleans(), st.booleans().map(lambda value: {"ne": value}), st.just({"in": [True]}))
_COUNTS = st.one_of(_NUMBERS, st.tuples(st.sampled_from(["gt", "lte", "ne"]), _NUMBERS).map(lambda p: {p[0]: p[1]}))


def _some(fields: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return tables with one to three of the fields. To draw any and filter empty ones out costs half the documents."""
    names = st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=3, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: fields[name] for name in chosen}))


def _tables(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    fields: dict[str, st.SearchStrategy[Any]] = {
        "metadata.plan": _METADATA,
        "header.X-Kind": _TEXT_TESTS,
        "group": _TEXT_TESTS,
        "stream": _FLAGS,
        "has_tools": _FLAGS,
        "input_tokens": _COUNTS,
        "any": st.lists(inner, min_size=1, max_size=3),
    }
    return _some(fields)


conditions = st.recursive(_tables(st.just({"stream": True})), _tables, max_leaves=4)
"""`when` tables for chat."""

facts = st.builds(
    Facts.of,
    metadata=st.fixed_dictionaries(
        {}, optional={"plan": st.sampled_from(["pro", "free", "", 0.0, 1.0, 2.0, True, False])}
    ),
    headers=st.fixed_dictionaries({}, optional={"x-kind": st.sampled_from(["x", "y", "z"])}),
    group_names=st.sampled_from([(), ("x",), ("id", "y"), ("x", "y")]),
    stream=st.booleans(),
    has_tools=st.booleans(),
    input_tokens=st.sampled_from([0, 1, 2, 3]),
)
"""Requests that make those tables true and false."""

_VALUES = {"temperature": st.sampled_from([0, 0.5]), "seed": st.integers(0, 3), "stop": st.sampled_from(["x", ["y"]])}
_DROPS = st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=2, unique=True)
overrides = _some({"set": _some(_VALUES), "default": _some(_VALUES), "drop": _DROPS})

_triggers = st.none() | st.lists(st.sampled_from(sorted(TRIGGERS)), min_size=1, max_size=3, unique=True)


@st.composite
def _virtual(draw: st.DrawFn, model_id: str, known: list[str]) -> dict[str, Any]:
    strategy = draw(st.sampled_from(["single", "fallback", "split", "switch"]))
    count = 1 if strategy == "single" else draw(st.integers(2, 4))
    targets: list[dict[str, Any]] = []
    for index in range(count):
        target: dict[str, Any] = {"model": draw(st.sampled_from(known)), "overrides": draw(st.none() | overrides)}
        if strategy == "split":
            target["weight"] = draw(st.integers(1, 3))
        if strategy == "switch" and index < count - 1:
            target["when"] = draw(conditions)
        targets.append(target)
    model: dict[str, Any] = {"id": model_id, "capability": "chat", "strategy": strategy, "targets": targets}
    if strategy in ("fallback", "split"):
        model["fallback_on"] = draw(_triggers)
    if draw(st.booleans()):
        model["preset"] = {"overrides": draw(overrides)}
    return model


@st.composite
def trees(draw: st.DrawFn) -> tuple[Config, str]:
    """Return a sound document and the id of its outermost virtual model: up to eight, the later around the earlier."""
    models: list[dict[str, Any]] = []
    attempts = dict.fromkeys(LEAVES, 1)
    for number in range(draw(st.integers(1, 8))):
        near = [model["id"] for model in models[-3:]]
        known = [model_id for model_id in (*LEAVES, *near, *near[-1:] * 3) if attempts[model_id] * 4 <= MAX_ATTEMPTS]
        models.append(draw(_virtual(f"v{number}", known)))
        attempts[models[-1]["id"]] = sum(attempts[target["model"]] for target in models[-1]["targets"])
    return config_of(*draw(st.permutations(models))), models[-1]["id"]
