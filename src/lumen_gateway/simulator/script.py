"""Replies from a TOML or JSON file, for `lumen upstream`. The format is in docs/simulator.md."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lumen_gateway.records import Usage
from lumen_gateway.simulator.reply import (
    DEFAULT_USAGE,
    STREAM_HEADERS,
    Answering,
    Call,
    Framing,
    Headers,
    Reply,
    Stop,
    auto,
    completion,
    error,
    json_reply,
    stream,
)

CONTENTS = ("auto", "completion", "stream", "error", "json", "text", "frames", "base64", "raw")
"""Fields of which a reply has at most one."""

Count = Annotated[int, Meta(ge=0)]
Status = Annotated[int, Meta(ge=100, le=999)]
HeaderValue = Annotated[str, Meta(pattern=r"^[^\r\n\x00]*$")]


class ScriptError(Exception):
    """A script that cannot be played. The text names file, place and field."""


class ErrorContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`error`: a refusal in OpenAI's envelope."""

    status: Status
    code: str | None = None
    message: str = "simulated failure"
    retry_after: str | int | None = None


class UsageContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`usage`: the tokens a completion or stream reports."""

    input: Count = DEFAULT_USAGE.input
    output: Count = DEFAULT_USAGE.output
    cached: Count | None = None
    reasoning: Count | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[replies]]`: one reply and what it is for. Without path and model it is for every other call."""

    path: Annotated[str, Meta(pattern=r"^/")] | None = None
    model: Annotated[str, Meta(min_length=1)] | None = None
    auto: str | None = None
    completion: str | None = None
    stream: list[str] | None = None
    error: ErrorContent | None = None
    json: Any = msgspec.UNSET
    text: str | None = None
    frames: list[str] | None = None
    base64: bytes | None = None
    raw: str | None = None
    usage: UsageContent = UsageContent()
    status: Status | None = None
    headers: dict[Annotated[str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")], HeaderValue] = {}
    framing: Framing | None = None
    delay_ms: Count = 0
    frame_delay_ms: Count = 0
    bytes_per_write: Annotated[int, Meta(ge=1)] | None = None
    stop: Stop | None = None
    stop_after_bytes: Count | None = None

    @property
    def tokens(self) -> Usage:
        """What the answer reports."""
        told = self.usage
        return Usage(told.input, told.output, cached=told.cached, reasoning=told.reasoning, origin="reported")

    @property
    def key(self) -> str:
        """What the entry is for, as `Upstream` names it."""
        return self.path or self.model or "*"

    def answering(self) -> Answering:
        """Return what answers the calls of this entry."""
        if self.auto is None:
            return self._shaped(self._content())
        make = auto(self.auto, usage=self.tokens)

        def answer(call: Call) -> Reply:
            return self._shaped(make(call))

        return answer

    def _content(self) -> Reply:
        if self.completion is not None:
            return completion(self.completion, model=self.model or "simulated", usage=self.tokens)
        if self.stream is not None:
            return stream(self.stream, model=self.model or "simulated", usage=self.tokens, done=self.stop is None)
        if self.error is not None:
            content = self.error
            return error(content.status, content.code, content.message, retry_after=content.retry_after)
        if self.json is not msgspec.UNSET:
            return json_reply(self.json)
        return self._bytes()

    def _bytes(self) -> Reply:
        if self.frames is not None:
            return Reply(headers=STREAM_HEADERS, frames=tuple(frame.encode() for frame in self.frames))
        if self.raw is not None:
            return Reply(raw=self.raw.encode())
        if self.text is not None:
            return Reply(headers=(("content-type", "text/plain; charset=utf-8"),), body=self.text.encode())
        return Reply(body=self.base64 or b"")

    def _shaped(self, reply: Reply) -> Reply:
        """Put on what every kind of content may carry."""
        return msgspec.structs.replace(
            reply,
            status=self.status or reply.status,
            headers=self._merged(reply.headers),
            framing=self.framing,
            delay_s=self.delay_ms / 1000,
            frame_delay_s=self.frame_delay_ms / 1000,
            bytes_per_write=self.bytes_per_write,
            stop=self.stop,
            stop_after_bytes=self.stop_after_bytes,
        )

    def _merged(self, headers: Headers) -> Headers:
        given = {name.lower() for name in self.headers}
        return tuple(header for header in headers if header[0] not in given) + tuple(self.headers.items())


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    replies: Annotated[list[Entry], Meta(min_length=1)]


def load(path: Path) -> dict[str, list[Answering]]:
    """Read a script into what `Upstream` plays: entries with the same path or model form a sequence, in file order.

    Raises: ScriptError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ScriptError(f"{path}: cannot be read: {exc}") from exc
    try:
        return parse(text, is_json=path.suffix == ".json")
    except ScriptError as exc:
        raise ScriptError(f"{path}: {exc}") from exc


def parse(text: str, *, is_json: bool = False) -> dict[str, list[Answering]]:
    """Read the text of a script; see `load`."""
    try:
        document = msgspec.json.decode(text) if is_json else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, msgspec.DecodeError) as exc:
        raise ScriptError(f"not valid {'JSON' if is_json else 'TOML'}: {exc}") from exc
    try:
        script = msgspec.convert(document, Script)
    except msgspec.ValidationError as exc:
        raise ScriptError(_placed(str(exc))) from exc
    replies: dict[str, list[Answering]] = {}
    for number, entry in enumerate(script.replies):
        _check(f"replies[{number}]", entry)
        replies.setdefault(entry.key, []).append(entry.answering())
    return replies


def _check(place: str, entry: Entry) -> None:
    """Refuse what would be played other than it reads."""
    contents = [name for name in CONTENTS if getattr(entry, name) not in (None, msgspec.UNSET)]
    if len(contents) > 1:
        raise ScriptError(f"{place}: {' and '.join(contents)} exclude each other; keep one")
    if entry.path is not None and entry.model is not None:
        raise ScriptError(f"{place}: path and model exclude each other; keep one")
    if entry.stop_after_bytes is not None and entry.stop is None:
        raise ScriptError(f'{place}.stop_after_bytes: needs stop = "reset", "end" or "hang" beside it')
    if entry.raw is not None and (entry.status or entry.headers):
        raise ScriptError(f"{place}.raw: is the whole answer; leave out status and headers")


def _placed(message: str) -> str:
    """Turn msgspec's `what - at `$.replies[0].status`` into `replies[0].status: what`; no file can say null."""
    found = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message, re.DOTALL)
    return (f"{found[2]}: {found[1]}" if found and found[2] else message).replace(" | null", "")
