"""Frames of chat streams for the tests, and what a client may have seen of one."""

from __future__ import annotations

from typing import Any

import msgspec

from lumen_gateway.dialects.chat_answer import DONE


def frame(delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return data({"choices": [choice], **more})


def data(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def text(content: str) -> bytes:
    return frame({"content": content})


ROLE = frame({"role": "assistant", "content": ""})
FINISH = frame(finish="stop")
USAGE = data({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
COMMENT = b": still thinking\n\n"
ERROR = data({"error": {"message": "overloaded", "type": "server_error", "code": "overloaded_error"}})
PLAIN = (COMMENT, ROLE, text("one "), text("two"), FINISH, DONE)
"""A whole answer, the reference of these tests. Without the client's asking for it there is no usage in it."""


class Seen:
    """What a client reads from the bytes of a stream; like any, it passes over comments and unknown fields."""

    def __init__(self, got: bytes) -> None:
        assert not got or got.endswith(b"\n\n"), "a frame was cut"
        payloads = [line.removeprefix(b"data: ") for line in got.split(b"\n") if line.startswith(b"data: ")]
        self.ended = payloads[-1:] == [b"[DONE]"]
        self.values = [msgspec.json.decode(payload) for payload in payloads if payload != b"[DONE]"]
        self.errors = [value["error"] for value in self.values if "error" in value]
        self.text = "".join(
            choice["delta"].get("content") or "" for value in self.values for choice in value.get("choices", ())
        )
