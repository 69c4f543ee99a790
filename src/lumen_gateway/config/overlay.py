"""Settings from the environment, laid over the document: `LUMEN_SERVER__PORT=9090` sets `server.port`.

A name counts if it contains `__`, or is that of a top-level value; any other `LUMEN_` name is a warning, since many
programs share a prefix. Case does not matter. Values are TOML scalars or arrays where they read as such, else text.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import inspect

from lumen_gateway.config.check import bare, fields_of
from lumen_gateway.config.rules import MASTER_KEY
from lumen_gateway.config.schema import Config, Fault
from lumen_gateway.config.wording import nearest

PREFIX = "LUMEN_"
OF_THE_PROCESS = frozenset({MASTER_KEY, "LUMEN_LOG", "LUMEN_WEBHOOK_ALLOWED_HOSTS"})  # read elsewhere, never settings

Path = tuple[str | int, ...]


def overlay(document: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[Path, str], list[Fault]]:
    """Write the environment's settings into the document; return which variable set which path, and the faults."""
    variables: dict[Path, str] = {}
    faults: list[Fault] = []
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or name.upper() in OF_THE_PROCESS:
            continue
        steps = tuple(name[len(PREFIX) :].lower().split("__"))
        if len(steps) == 1 and steps[0] not in _top_level_values():
            variables[(name,)] = name
            faults.append(_ignored(name, steps[0]))
            continue
        variables[steps] = name
        fault = _set(document, steps, parse_value(environ[name]))
        if fault is not None:
            faults.append(fault)
    return variables, faults


def _top_level_values() -> list[str]:
    tables = (inspect.StructType, inspect.ListType, inspect.DictType)
    return [key for key, field in fields_of(Config).items() if not isinstance(bare(field.type), tables)]


def _ignored(name: str, word: str) -> Fault:
    near = nearest(word, _top_level_values())
    fix = f"write {PREFIX}{near.upper()}" if near else f"settings in tables are written like {PREFIX}SERVER__PORT"
    return Fault((name,), "is not a setting and is ignored", fix, warning=True)


def _set(document: dict[str, Any], steps: tuple[str, ...], value: object) -> Fault | None:
    table = document
    for depth, step in enumerate(steps[:-1], start=1):
        inner = table.setdefault(step, {})
        if not isinstance(inner, dict):
            return Fault(steps, f"nothing below {'.'.join(steps[:depth])} can be set from the environment", "unset it")
        table = inner
    table[steps[-1]] = value
    return None


def parse_value(text: str) -> object:
    """Read a TOML scalar or array; anything else, tables and dates included, is text."""
    try:
        parsed = tomllib.loads(f"value = {text}", parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return text
    value = parsed["value"]
    return value if len(parsed) == 1 and isinstance(value, bool | int | Decimal | str | list) else text
