"""Anthropic's wire as tests look at it: rules a stream and a request obey, and the message a stream adds up to.

Source: Anthropic API reference, "Streaming messages" and "Create a Message".
"""

from __future__ import annotations

import json
import re
from typing import Any

from lumen_gateway.dialects.sse import Frame, Splitter


def is_message(entry: dict[str, Any]) -> bool:
    """Say whether a recording is a good answer of this dialect."""
    return bool(entry["api"] == "messages" and entry["status"] < 400)


def is_message_stream(entry: dict[str, Any]) -> bool:
    return is_message(entry) and bool(entry["stream"])


def is_whole_stream(entry: dict[str, Any]) -> bool:
    """Say whether a stream ends as it should: two recordings end in an error, one has lost its middle."""
    return is_message_stream(entry) and not {"in_stream_error", "stop:pause_turn"} & set(entry["features"])


def frames(stream: bytes) -> list[Frame]:
    splitter = Splitter(1 << 24)
    whole = splitter.feed(stream)
    last = splitter.end()
    return whole if last is None else [*whole, last]


def events(stream: bytes) -> list[dict[str, Any]]:
    """Return the payloads of a stream, each of whose frames must be named after its type."""
    found = []
    for frame in frames(stream):
        if frame.data is not None:
            payload = json.loads(frame.data)
            assert frame.event.decode() == payload["type"]
            found.append(payload)
    return found


def message_of(stream: bytes) -> dict[str, Any]:
    """Return the message a stream adds up to, having held it to every rule of its protocol."""
    first, *middle, closing, last = [event for event in events(stream) if event["type"] != "ping"]
    assert (first["type"], closing["type"], last["type"]) == ("message_start", "message_delta", "message_stop")
    message: dict[str, Any] = first["message"]
    assert message["content"] == []
    assert message["stop_reason"] is None
    open_block: dict[str, Any] | None = None
    for event in middle:
        kind = event["type"]
        if kind == "content_block_start":
            assert open_block is None
            assert event["index"] == len(message["content"])
            open_block = event["content_block"]
            message["content"].append(open_block)
            continue
        assert open_block is not None
        assert event["index"] == len(message["content"]) - 1
        if kind == "content_block_delta":
            _fill(open_block, event["delta"])
        else:
            assert kind == "content_block_stop"
            _close(open_block)
            open_block = None
    assert open_block is None
    message["usage"] |= closing["usage"]
    message |= closing["delta"]
    return message


def _fill(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta["type"]:
        case "text_delta":
            assert block["type"] == "text"
            block["text"] += delta["text"]
        case "thinking_delta":
            assert block["type"] == "thinking"
            assert not block["signature"], "thinking after its signature"
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            assert block["type"] == "thinking"
            block["signature"] = block.get("signature", "") + delta["signature"]
        case "input_json_delta":
            assert block["input"] == {}
            block["json"] = block.get("json", "") + delta["partial_json"]
        case "citations_delta":
            pass
        case other:
            raise AssertionError(other)


def _close(block: dict[str, Any]) -> None:
    told = block.pop("json", "")
    if told:
        block["input"] = json.loads(told)
    if "input" in block:
        assert isinstance(block["input"], dict)


def check_request(body: dict[str, Any]) -> None:
    """Hold a request to what the API refuses."""
    assert isinstance(body["max_tokens"], int)
    assert body["messages"]
    waiting: list[str] = []
    role = None
    for message in body["messages"]:
        assert message["role"] in {"user", "assistant"}
        assert message["role"] != role, "two turns of one role in a row"
        role, content = message["role"], message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert kinds[: len(results)] == ["tool_result"] * len(results), "a result behind other blocks"
        if role == "user":
            assert sorted(results) == sorted(waiting)
        for block in blocks:
            _check_block(block)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
    _check_choices(body)


def _check_block(block: dict[str, Any]) -> None:
    match block["type"]:
        case "text":
            assert block["text"].strip()
        case "tool_use":
            assert isinstance(block["input"], dict)
            assert re.fullmatch(r"[A-Za-z0-9_-]+", block["id"])
        case "tool_result":
            for inner in block.get("content", []):
                _check_block(inner)
        case "thinking":
            assert block["signature"]


def _check_choices(body: dict[str, Any]) -> None:
    assert body.get("system", "x")
    assert body.get("tools", "x")
    choice = body.get("tool_choice")
    assert choice is None or body["tools"]
    thinking = body.get("thinking")
    if thinking is not None:
        assert not {"temperature", "top_p", "top_k"} & body.keys()
        assert (choice or {}).get("type") not in {"any", "tool"}
        if thinking["type"] == "enabled":
            assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]
