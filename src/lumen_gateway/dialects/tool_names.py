"""Names of tools that are too long for an upstream: sent short, told long.

A short name is made from the long one alone, so each attempt, and each turn of a conversation, makes the same; what is
left of the long name comes first, a digest of it last. Which long name a short one stands for is read off the request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from lumen_gateway.dialects.neutral import Part, Request, ToolCall, ToolChoice, ToolResult

_DIGEST_CHARACTERS = 10

replace = msgspec.structs.replace


def shorten(name: str, limit: int) -> str:
    """Return the name, made to fit a limit of characters."""
    if len(name) <= limit:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_CHARACTERS // 2).hexdigest()
    return f"{name[: limit - _DIGEST_CHARACTERS - 1]}_{digest}"


def long_names(request: Request, limit: int) -> dict[str, str]:
    """Return what each shortened name of the request's tools stands for; empty for nearly every request."""
    return {shorten(tool.name, limit): tool.name for tool in request.tools if len(tool.name) > limit}


def with_short_names(request: Request, limit: int) -> Request:
    """Return the request with every name made to fit: of tools, calls, results, and of the one that must be used."""
    if all(len(tool.name) <= limit for tool in request.tools):
        return request
    choice = request.tool_choice
    return replace(
        request,
        tools=[replace(tool, name=shorten(tool.name, limit)) for tool in request.tools],
        tool_choice=None if choice is None else ToolChoice(choice.mode, shorten(choice.tool, limit)),
        turns=[replace(turn, parts=[_short(part, limit) for part in turn.parts]) for turn in request.turns],
    )


def _short(part: Part, limit: int) -> Part:
    if isinstance(part, ToolCall | ToolResult):
        return replace(part, name=shorten(part.name, limit))
    return part


def with_long_names(parts: Sequence[Part], names: Mapping[str, str]) -> list[Part]:
    """Return an answer's parts with the names the client knows."""
    return [
        replace(part, name=names.get(part.name, part.name)) if isinstance(part, ToolCall) else part for part in parts
    ]
