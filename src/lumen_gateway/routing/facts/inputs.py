"""Facts that are read off the client's own input, one table for each capability."""

from __future__ import annotations

from collections.abc import Mapping

from lumen_gateway.accounting.tokens import estimate_chat
from lumen_gateway.dialects.chat import ChatRequest
from lumen_gateway.routing.facts import Facts, Scalar, Sources

_CHAT: Sources = {
    "stream": lambda request: request.stream,
    "has_images": ChatRequest.has_images,
    "has_tools": ChatRequest.has_tools,
    "input_tokens": estimate_chat,
}


def chat_facts(
    request: ChatRequest,
    group_names: tuple[str, ...],
    metadata: Mapping[str, Scalar],
    headers: Mapping[str, str],
) -> Facts:
    """Return the facts of a chat request, its preset applied. Nothing is computed yet."""
    return Facts(_CHAT, request, group_names, metadata, headers)
