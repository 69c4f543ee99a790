"""What a scripted upstream answers: one frozen value per reply, and builders for the usual ones.

A `Reply` says everything about one answer: status, headers, body or frames, how the bytes are cut up in time and size,
and how the answer goes wrong. `upstream.py` plays it; `script.py` reads replies from a file. No sockets here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from lumen_gateway.records import Usage

Headers = tuple[tuple[str, str], ...]
Framing = Literal["content-length", "chunked", "close"]
Stop = Literal["reset", "end", "hang"]

JSON_HEADERS: Headers = (("content-type", "application/json"),)
STREAM_HEADERS: Headers = (("content-type", "text/event-stream"), ("cache-control", "no-cache"))
DEFAULT_USAGE = Usage(input=9, output=3, origin="reported")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the simulated upstream, faults included.

    `frames` are written one by one, `frame_delay_s` apart (with chunked framing each is a chunk of its own); without
    them `body` is the answer. `framing` None means chunked for frames and content-length for a body; a framing header
    given in `headers` is sent as it stands, true or not. `stop` breaks the answer off, by RST, by FIN or by silence,
    after `stop_after_bytes` bytes counted from the first byte of the status line, or, without that number, after the
    last frame and before the proper end of the body. `raw` replaces head and body by these bytes; with framing `close`
    a FIN follows them.
    """

    status: int = 200
    headers: Headers = ()
    body: bytes = b""
    frames: tuple[bytes, ...] | None = None
    framing: Framing | None = None
    delay_s: float = 0.0  # before the first byte
    frame_delay_s: float = 0.0  # before each frame but the first
    bytes_per_write: int | None = None  # cut every write into pieces of this size
    stop: Stop | None = None
    stop_after_bytes: int | None = None
    raw: bytes | None = None


class Call(msgspec.Struct, kw_only=True):
    """One request the upstream received, and what became of its answer."""

    method: str
    path: str
    headers: dict[str, str]  # lower-case names; of a repeated one the last
    body: bytes
    at: float  # loop time at the request's last byte
    status: int = 0
    peer_closed_at: float | None = None  # loop time; set only when the peer closed before the reply was over
    over: asyncio.Event = msgspec.field(default_factory=asyncio.Event)  # the reply is written, broken off, or unwanted

    def json(self) -> Any:
        """Decode the body."""
        return msgspec.json.decode(self.body)

    def field(self, name: str) -> Any:
        """Return one top-level field of a JSON body; None when there is no such thing."""
        try:
            body = self.json()
        except msgspec.DecodeError:
            return None
        return body.get(name) if isinstance(body, dict) else None


Answering = Reply | Callable[[Call], Reply]
"""A reply, or a function that makes one from the call."""

Replies = Answering | Sequence[Answering] | Mapping[str, Answering | Sequence[Answering]]
"""What an upstream is scripted with: see `Upstream`."""


def json_reply(value: Any, status: int = 200, headers: Headers = ()) -> Reply:
    """Answer `value` as JSON."""
    return Reply(status=status, headers=JSON_HEADERS + headers, body=msgspec.json.encode(value))


def completion(text: str, *, model: str = "simulated", usage: Usage | None = DEFAULT_USAGE) -> Reply:
    """Answer a whole chat completion."""
    message = {"role": "assistant", "content": text}
    answer: dict[str, Any] = {
        "id": "chatcmpl-simulated",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    if usage is not None:
        answer["usage"] = _usage(usage)
    return json_reply(answer)


def stream(
    pieces: Sequence[str], *, model: str = "simulated", usage: Usage | None = None, done: bool = True, **more: Any
) -> Reply:
    """Answer a streamed chat completion: role, one frame per piece, finish reason, usage if given, `[DONE]`.

    `done=False` leaves out the finish reason and everything after it. `more` are further fields of `Reply`.
    """
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in pieces]
    if done:
        deltas.append(({}, "stop"))
    frames = [_chunk(model, [{"index": 0, "delta": delta, "finish_reason": reason}]) for delta, reason in deltas]
    if done and usage is not None:
        frames.append(_chunk(model, [], _usage(usage)))
    if done:
        frames.append(b"data: [DONE]\n\n")
    return Reply(headers=STREAM_HEADERS, frames=tuple(frames), **more)


def error(
    status: int,
    code: str | None = None,
    message: str = "simulated failure",
    *,
    kind: str = "error",
    retry_after: str | int | None = None,
) -> Reply:
    """Answer an error in OpenAI's envelope."""
    headers: Headers = () if retry_after is None else (("retry-after", str(retry_after)),)
    return json_reply({"error": {"message": message, "type": kind, "param": None, "code": code}}, status, headers)


def auto(text: str, *, usage: Usage = DEFAULT_USAGE) -> Callable[[Call], Reply]:
    """Answer `text` the way the request asks: streamed word by word or whole, with the requested model's name.

    A stream carries the usage chunk only when `stream_options.include_usage` asks for it.
    """

    def answer(call: Call) -> Reply:
        model = str(call.field("model") or "simulated")
        if not call.field("stream"):
            return completion(text, model=model, usage=usage)
        options = call.field("stream_options")
        asked = isinstance(options, dict) and options.get("include_usage") is True
        return stream(words(text), model=model, usage=usage if asked else None)

    return answer


def words(text: str) -> list[str]:
    """Cut a text into pieces the way a model streams it; joined they are the text again."""
    first, *rest = text.split(" ")
    return [first, *(f" {word}" for word in rest)]


def _chunk(model: str, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
    chunk: dict[str, Any] = {
        "id": "chatcmpl-simulated",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": model,
        "choices": choices,
    }
    if usage is not None:
        chunk["usage"] = usage
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _usage(usage: Usage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
    }
    if usage.cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached}
    if usage.reasoning is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return counts
