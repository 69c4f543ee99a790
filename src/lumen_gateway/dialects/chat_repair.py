"""Small deviations of servers that almost speak OpenAI's dialect, put right so that the official SDKs can read them.

Exactly three: `choices: null` becomes `[]`, `finish_reason: ""` becomes null, and tool calls of a stream that carry no
`index` get one. Only for providers with `repair`; only bodies that deviate are rewritten, and only at those places.
"""

from __future__ import annotations

import msgspec

from lumen_gateway.dialects.spans import UNREADABLE, Fields

_NULL = msgspec.Raw(b"null")
_EMPTY_LIST = msgspec.Raw(b"[]")
_EMPTY_TEXT = msgspec.Raw(b'""')

_encode = msgspec.json.Encoder().encode
_object = msgspec.json.Decoder(Fields).decode
_objects = msgspec.json.Decoder(list[Fields]).decode
_text = msgspec.json.Decoder(str).decode


def repair_answer(body: bytes) -> bytes:
    """Return a buffered answer with its deviations put right, or the very same bytes."""
    try:
        fields = _object(body)
        if _repair_choices(fields, {}):
            return _encode(fields)
    except UNREADABLE:
        pass  # not what repair is for; the reader says what is wrong with it
    return body


class FrameRepair:
    """Repairs the frames of one stream; remembers the tool calls it has numbered."""

    def __init__(self) -> None:
        self._calls: dict[bytes, list[str]] = {}  # choice index -> id of each tool call, in order of appearance

    def repair(self, data: bytes) -> bytes | None:
        """Return the payload of a frame put right, or None if nothing was wrong with it."""
        try:
            fields = _object(data)
            return _encode(fields) if _repair_choices(fields, self._calls) else None
        except UNREADABLE:
            return None


def _repair_choices(fields: Fields, calls: dict[bytes, list[str]]) -> bool:
    raw = fields.get("choices")
    if raw is None:
        return False
    if raw == _NULL:
        fields["choices"] = _EMPTY_LIST
        return True
    choices = _objects(raw)
    changed = [_repair_choice(choice, calls) for choice in choices]
    if not any(changed):
        return False
    fields["choices"] = msgspec.Raw(_encode(choices))
    return True


def _repair_choice(choice: Fields, calls: dict[bytes, list[str]]) -> bool:
    changed = choice.get("finish_reason") == _EMPTY_TEXT
    if changed:
        choice["finish_reason"] = _NULL
    raw = choice.get("delta", _NULL)
    if raw == _NULL:
        return changed
    delta = _object(raw)
    if delta.get("tool_calls", _NULL) == _NULL:
        return changed
    tool_calls = _objects(delta["tool_calls"])
    ids = calls.setdefault(bytes(choice.get("index", _NULL)), [])
    numbered = [_number(call, ids) for call in tool_calls]
    if not any(numbered):
        return changed
    delta["tool_calls"] = msgspec.Raw(_encode(tool_calls))
    choice["delta"] = msgspec.Raw(_encode(delta))
    return True


def _number(call: Fields, ids: list[str]) -> bool:
    """Give the call an index if it has none: that of its id; a new one if an id or a name starts it; else the last."""
    call_id = _text(call["id"]) if call.get("id", _NULL) != _NULL else ""
    known = call_id in ids if call_id else not _starts_call(call) and bool(ids)
    if not known:
        ids.append(call_id)
    if call.get("index", _NULL) != _NULL:
        return False
    index = ids.index(call_id) if known and call_id else len(ids) - 1
    call["index"] = msgspec.Raw(str(index).encode())
    return True


def _starts_call(call: Fields) -> bool:
    raw = call.get("function", _NULL)
    return raw != _NULL and _object(raw).get("name", _NULL) not in (_NULL, _EMPTY_TEXT)
