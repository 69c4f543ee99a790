"""Presets: the system prompt a virtual model puts before the client's messages, when it is the requested id.

Works on the bytes of `messages` and leaves every message that stays as the client wrote it. The preset's overrides are
not applied here: they are folded into the attempts by `tree.py`. What a preset may hold is checked by `validate.py`.
"""

from __future__ import annotations

import msgspec

from lumen_gateway.config.schema import Preset
from lumen_gateway.dialects.chat import with_messages
from lumen_gateway.dialects.messages import MessagesRequest, with_system
from lumen_gateway.dialects.responses import ResponsesRequest, with_instructions
from lumen_gateway.dialects.wire import ClientRequest

_SYSTEM_ROLES = ("system", "developer")


class _Turn(msgspec.Struct, frozen=True):
    """What is read of a message."""

    role: str


_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_turns = msgspec.json.Decoder(list[_Turn]).decode


def prompted(preset: Preset, request: ClientRequest) -> ClientRequest:
    """Return the request with the preset's system prompt in it."""
    if preset.system_prompt is None:
        return request
    if isinstance(request, MessagesRequest):
        return with_system(request, preset.system_prompt, preset.system_prompt_mode)
    if isinstance(request, ResponsesRequest):
        return with_instructions(request, preset.system_prompt, preset.system_prompt_mode)
    return with_messages(request, apply_preset(preset, request.fields["messages"]))


def apply_preset(preset: Preset, messages: msgspec.Raw) -> msgspec.Raw:
    """Return the messages with the preset's system prompt in them.

    Shape:  `messages` is a JSON array of objects with a `role`, as `dialects.chat` has checked.
    Source: docs/virtual-models.md, "Presets".
    """
    if preset.system_prompt is None:
        return messages
    system = [turn.role in _SYSTEM_ROLES for turn in _decode_turns(messages)]
    if preset.system_prompt_mode == "if_absent" and any(system):
        return messages
    prompt = msgspec.json.encode({"role": "system", "content": preset.system_prompt})
    if preset.system_prompt_mode == "replace" and any(system):
        kept = [bytes(raw) for raw, drop in zip(_decode_raws(messages), system, strict=True) if not drop]
        return msgspec.Raw(b"[" + b",".join([prompt, *kept]) + b"]")
    opening, behind = bytes(messages).split(b"[", 1)
    return msgspec.Raw(opening + b"[" + prompt + (b"," if system else b"") + behind)
