"""The rules of Chat Completions that clients and upstreams hold us to, as checks that list what breaks them.

Source: OpenAI API reference, "Create chat completion", "The chat completion chunk object"; refusals of real upstreams.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from lumen_gateway.dialects.sse import Splitter

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def chunks_of(stream: bytes) -> list[Any]:
    """Return the data of every frame; `[DONE]` as the text it is."""
    frames = Splitter(1 << 22).feed(stream)
    return [
        frame.data.decode() if frame.data == b"[DONE]" else json.loads(frame.data) for frame in frames if frame.data
    ]


def faults_of_stream(stream: bytes) -> list[str]:
    """List what a client would stumble over in a stream that ended well."""
    *chunks, last = chunks_of(stream) or [None]
    faults = [] if last == "[DONE]" else ["does not end with [DONE]"]
    names = {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks}
    if len(names) != 1:
        faults.append("chunks disagree about the answer they belong to")
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    if not choices or choices[0]["delta"].get("role") != "assistant":
        faults.append("does not begin with the role")
    if [bool(choice["finish_reason"]) for choice in choices] != [False] * (len(choices) - 1) + [True]:
        faults.append("not exactly one finish reason, on the last choice")
    if any(not chunk["choices"] for chunk in chunks[:-1]):
        faults.append("a chunk without choices before the end")
    return faults + list(_faults_of_calls([choice["delta"] for choice in choices]))


def _faults_of_calls(deltas: list[Any]) -> Iterator[str]:
    arguments: list[str] = []
    for piece in (piece for delta in deltas for piece in delta.get("tool_calls", ())):
        if piece["index"] == len(arguments):
            arguments.append("")
            if not (piece.get("id") and piece.get("type") == "function" and piece["function"].get("name")):
                yield "a call opens without id, type or name"
        elif piece["index"] > len(arguments) or "id" in piece:
            yield "a piece of a call that did not open, or opens twice"
            continue
        arguments[piece["index"]] += piece["function"]["arguments"]
    for text in arguments:
        try:
            json.loads(text)
        except ValueError:
            yield "arguments are no JSON"


def faults_of_request(body: Any) -> list[str]:
    """List what an upstream would refuse."""
    faults = []
    waiting: list[str] = []
    for message in body["messages"]:
        role, content, calls = message["role"], message["content"], message.get("tool_calls", [])
        if role == "tool":
            if message["tool_call_id"] not in waiting or not isinstance(content, str):
                faults.append("a result of no call, or not of text")
            waiting = [call_id for call_id in waiting if call_id != message["tool_call_id"]]
            continue
        if waiting:
            faults.append("calls are not answered before the next message")
        if role == "assistant" and not (content or calls or message.get("refusal")):
            faults.append("an empty turn of the assistant")
        if role != "user" and isinstance(content, list):
            faults.append("parts in a turn that is not the user's")
        waiting = [call["id"] for call in calls]
    if waiting:
        faults.append("calls are never answered")
    functions = [tool["function"]["name"] for tool in body.get("tools", []) if tool["type"] == "function"]
    functions += [call["function"]["name"] for message in body["messages"] for call in message.get("tool_calls", [])]
    faults += [f"the tool name {name}" for name in functions if not TOOL_NAME.fullmatch(name)]
    if "tools" not in body and body.keys() & {"tool_choice", "parallel_tool_calls"}:
        faults.append("says how to call tools without any")
    return faults
