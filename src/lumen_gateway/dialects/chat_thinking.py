"""Reasoning in Chat Completions, which OpenAI's own reference gives no place: what vendors made of it, both ways.

Four spellings are read: `thinking_blocks` (text with a signature, or redacted), OpenRouter's `reasoning_details`, and
the bare text `reasoning_content` (DeepSeek and most others) or `reasoning`. Two are written: the text in
`reasoning_content`, and blocks that are signed or redacted, which must come back unchanged, in `thinking_blocks`.

Source: DeepSeek API reference, "Reasoning model"; OpenRouter docs, "Reasoning tokens"; docs/providers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from lumen_gateway.dialects.neutral import Thinking


class Reasoned(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a message or delta that hold reasoning. Servers differ, so their types are checked on reading."""

    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None

    def has_thinking(self) -> bool:
        """Say whether any of the fields is set. Most pieces of a stream have none, and ask no further."""
        return bool(self.reasoning_content or self.reasoning or self.thinking_blocks or self.reasoning_details)

    def shown(self) -> str:
        """Return the bare text, "" without one."""
        for text in (self.reasoning_content, self.reasoning):
            if text and isinstance(text, str):
                return text
        return ""

    def blocks(self) -> list[Thinking]:
        """Return the blocks in their order; those of `reasoning_details` only if one is signed or redacted."""
        if self.thinking_blocks and (blocks := list(_read_blocks(self.thinking_blocks))):
            return blocks
        if not self.reasoning_details:
            return []
        details = list(_read_details(self.reasoning_details))
        return details if any(block.signature or block.redacted for block in details) else []

    def thinking(self) -> list[Thinking]:
        """Return the reasoning of a whole message: its blocks, which repeat the bare text, else that text."""
        shown = self.shown()
        return self.blocks() or ([Thinking(text=shown)] if shown else [])


def _read_blocks(blocks: Any) -> Iterator[Thinking]:
    for block in _objects(blocks):
        text, signature, data = (_text(block.get(name)) for name in ("thinking", "signature", "data"))
        if text or signature or data:
            yield Thinking(text=text, signature=signature, redacted=data)


def _read_details(details: Any) -> Iterator[Thinking]:
    """Yield what can be shown. Encrypted reasoning is a redacted block only where Anthropic made it."""
    for detail in _objects(details):
        text, signature, data = (_text(detail.get(name)) for name in ("text", "signature", "data"))
        redacted = data if _text(detail.get("format")).startswith("anthropic") else ""
        if text or signature or redacted:
            yield Thinking(text=text, signature=signature, redacted=redacted)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in (value if isinstance(value, list) else ()) if isinstance(item, dict))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def write_thinking(parts: Iterable[Thinking]) -> dict[str, object]:
    """Return the fields of a message that hold this reasoning; none for none."""
    fields: dict[str, object] = {}
    blocks = []
    texts = []
    for part in parts:
        if part.text:
            texts.append(part.text)
        if part.signature or part.redacted:
            blocks.append(write_block(part))
    if texts:
        fields["reasoning_content"] = "".join(texts)
    if blocks:
        fields["thinking_blocks"] = blocks
    return fields


def write_block(part: Thinking) -> dict[str, str]:
    """Return one signed or redacted block as it must come back."""
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.redacted}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}
