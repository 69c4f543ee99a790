"""Tool calls as Chat Completions write them: in the turns of a request, in answers, in pieces of a stream.

Source: OpenAI API reference, "Create chat completion"; Google's OpenAI compatibility, "Thought signatures".
"""

from __future__ import annotations

from typing import Any

import msgspec

from lumen_gateway.dialects.neutral import Raw, ToolCall

NO_ARGUMENTS = "{}"

_decode_text = msgspec.json.Decoder(str).decode


class Function(msgspec.Struct, frozen=True):
    """What is called. Some servers send `arguments` as an object instead of as its text."""

    name: str | None = None
    arguments: Raw = Raw(b'""')

    def text(self) -> str:
        """Return the arguments as text, "" for none."""
        raw = bytes(self.arguments)
        if raw == b"null":
            return ""
        return _decode_text(raw) if raw.startswith(b'"') else raw.decode()

    def read(self, call_id: str, signature: str = "") -> ToolCall:
        """Return the whole call."""
        arguments = self.text()
        return ToolCall(
            id=call_id,
            name=self.name or "",
            arguments=arguments if arguments.strip() else NO_ARGUMENTS,
            signature=signature,
        )


class Call(msgspec.Struct, frozen=True):
    """A tool call, or in a stream a piece of one. It has no `function` if it is of a kind only this dialect knows."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: Any = None

    def signature(self) -> str:
        """Return Google's thought signature, "" without one."""
        google = self.extra_content.get("google") if isinstance(self.extra_content, dict) else None
        signature = google.get("thought_signature") if isinstance(google, dict) else None
        return signature if isinstance(signature, str) else ""


def write_call(call: ToolCall, name: str) -> dict[str, object]:
    """Return the call as part of a message, under that name."""
    function = {"name": name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **write_signature(call.signature)}


def write_signature(signature: str) -> dict[str, object]:
    """Return the field of a call that holds Google's thought signature; none for none."""
    return {"extra_content": {"google": {"thought_signature": signature}}} if signature else {}
