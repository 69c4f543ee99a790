"""Edits of a neutral request, for translations with chat on neither side: edits speak of the fields of chat.

What the request says is written down as chat has it, edited, and read again; taken over is only what came out changed,
so that what chat has no place for stays as it was.
"""

from __future__ import annotations

import msgspec

from lumen_gateway.dialects import chat_from_neutral, chat_to_neutral, spans
from lumen_gateway.dialects.chat import OPEN, parse_request
from lumen_gateway.dialects.neutral import Raw, Request, Text, Turn
from lumen_gateway.dialects.wire import Edit

_NO_MODEL = Raw(b'""')
_TURNS = (Turn("user", [Text(text="-")]),)  # edits leave the conversation alone, but chat wants one


def edited(request: Request, edit: Edit) -> Request:
    """Return the request as the edit wants it."""
    fields = spans.split(
        chat_from_neutral.write_request(msgspec.structs.replace(request, turns=_TURNS), _NO_MODEL, OPEN)
    )
    before = _read(fields)
    edit(fields)
    after = _read(fields)
    changed = {name: value for name, value in after.items() if value != before[name]}
    return msgspec.structs.replace(request, **changed)


def _read(fields: spans.Fields) -> dict[str, object]:
    said = msgspec.structs.asdict(chat_to_neutral.read_request(parse_request(spans.join(fields))))
    return {name: value for name, value in said.items() if name not in {"turns", "unmapped"}}
