"""Gemini's wire as tests look at it: rules a request obeys, and pieces of answers and streams.

Source: Gemini API reference, "GenerateContentRequest".
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from lumen_gateway.dialects.sse import Frame, Splitter

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")


def is_gemini(entry: dict[str, Any]) -> bool:
    """Say whether a recording is a good answer of this dialect."""
    return bool(entry["api"] == "generateContent" and entry["status"] < 400)


def is_whole(entry: dict[str, Any]) -> bool:
    """Say whether it is an answer, not one that the model gave up."""
    return is_gemini(entry) and "stop:UNEXPECTED_TOOL_CALL" not in entry["features"]


def is_stream(entry: dict[str, Any]) -> bool:
    return is_whole(entry) and bool(entry["stream"])


def is_body(entry: dict[str, Any]) -> bool:
    return is_whole(entry) and not entry["stream"]


def body(*parts: dict[str, Any], reason: str | None = "STOP", **fields: Any) -> bytes:
    """Return an answer, which is also a piece of a stream."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}}
    if reason:
        candidate["finishReason"] = reason
    return json.dumps({"candidates": [candidate], "modelVersion": "gem", "responseId": "r1", **fields}).encode()


def frames(*payloads: bytes) -> list[Frame]:
    return Splitter(1 << 24).feed(b"".join(b"data: " + payload + b"\r\n\r\n" for payload in payloads))


def faults_of_request(sent: dict[str, Any]) -> list[str]:
    """Return what the API would refuse."""
    roles = [content["role"] for content in sent["contents"]]
    faults = ["two model turns in a row" for a, b in itertools.pairwise(roles) if a == b == "model"]
    faults += [f"role {role}" for role in roles if role not in {"user", "model"}]
    faults += ["no parts" for content in sent["contents"] if not content["parts"]]
    parts = [part for content in sent["contents"] for part in content["parts"]]
    named = [part[kind] for part in parts for kind in ("functionCall", "functionResponse") if kind in part]
    named += [tool for entry in sent.get("tools", ()) for tool in entry["functionDeclarations"]]
    faults += [f"name {each['name']}" for each in named if not NAME.fullmatch(each["name"])]
    faults += ["arguments" for each in named if not isinstance(each.get("args", {}), dict)]
    return faults + ["response" for each in named if not isinstance(each.get("response", {}), dict)]
