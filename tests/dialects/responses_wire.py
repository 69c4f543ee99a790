"""OpenAI's Responses as tests look at them: the rules a stream obeys, and the response it adds up to.

Source: OpenAI API reference, "Streaming events" of Responses.
"""

from __future__ import annotations

import json
from typing import Any

from lumen_gateway.dialects.sse import Frame, Splitter

_PIECES = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.function_call_arguments": "arguments",
    "response.reasoning_summary_text": "text",
}


def is_response(entry: dict[str, Any]) -> bool:
    """Say whether a recording is a good answer of this dialect."""
    return bool(entry["api"] == "responses" and entry["status"] < 400)


def is_response_stream(entry: dict[str, Any]) -> bool:
    return is_response(entry) and bool(entry["stream"])


def frames(stream: bytes) -> list[Frame]:
    splitter = Splitter(1 << 24)
    whole = splitter.feed(stream)
    last = splitter.end()
    return whole if last is None else [*whole, last]


def events(stream: bytes) -> list[dict[str, Any]]:
    """Return the payloads of a stream, each of whose frames must be named after its type and numbered by its place."""
    found: list[dict[str, Any]] = []
    for frame in frames(stream):
        if frame.data is not None:
            payload = json.loads(frame.data)
            assert frame.event.decode() == payload["type"]
            assert payload["sequence_number"] == len(found)
            found.append(payload)
    return found


def response_of(stream: bytes) -> dict[str, Any]:
    """Return the response a stream ends with, once every event was in its place."""
    told = events(stream)
    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    assert told[-1]["type"] in {"response.completed", "response.incomplete"}
    items: dict[int, dict[str, Any]] = {}
    done: dict[int, dict[str, Any]] = {}
    pieces: dict[tuple[str, int, int], str] = {}
    for event in told[2:-1]:
        kind, _, step = event["type"].rpartition(".")
        index = event["output_index"]
        if event["type"] == "response.output_item.added":
            assert index == len(items)
            items[index] = event["item"]
            continue
        assert index in items
        assert index not in done
        if event["type"] == "response.output_item.done":
            done[index] = event["item"]
            continue
        assert event["item_id"] == items[index]["id"]
        if kind in _PIECES:
            place = (kind, index, event.get("content_index", 0))
            if step == "delta":
                pieces[place] = pieces.get(place, "") + event["delta"]
            else:
                assert event[_PIECES[kind]] == pieces[place]
    response: dict[str, Any] = told[-1]["response"]
    assert response["output"] == [done[index] for index in sorted(items)]
    for item in response["output"]:
        if item["type"] == "function_call":
            json.loads(item["arguments"] if item["status"] == "completed" else "{}")
    return response
