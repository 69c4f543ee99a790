"""Server-sent events: bytes to frames and nothing else; what a frame means is the dialects' business.

Frames keep the bytes they came from, so that a relay forwards an upstream's stream unchanged while it reads along:
the `raw` of all frames, put together, is the input, but for a byte order mark at its start, which would hide the first
frame behind anything a relay sends before it, and a blank line missing at its end.

Source: WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6, with two liberties: a last frame without its blank line
counts, and a field named `error` (older llama.cpp servers) is an error event.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"
# A line end, then another: LF, CR and CRLF in any mix. CRLF alone is one line end, so CR LF does not match.
_BLANK_LINE = re.compile(rb"\n\n|[\r\n]\r\n?")
_MUCH_BYTES = 64 * 1024  # copied with each chunk no more than that


class Frame(NamedTuple):
    """One event. `event` is empty when not named; `data` is None for comments, blank lines and other fields alone."""

    raw: bytes
    event: bytes
    data: bytes | None


class EventTooLarge(ValueError):  # noqa: N818 - reads as what it is; the dialects' errors carry no suffix
    """An event grew past the limit before it ended."""


class Splitter:
    """Cuts a byte stream into frames, however it was split on the way.

    Time is linear in the input for any splitting. A CRLF cut in two does not delay its frame: the LF then leads the raw
    bytes of the next one.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending = bytearray()
        self._searched = 0  # bytes of pending known to hold no blank line
        self._started = False

    def whole(self, chunk: bytes) -> tuple[bytes, bytes]:
        """Return the whole frames of what waits and the chunk, uncut, and the rest. Changes nothing.

        Shape: no frames where they have to be looked at one by one: other line ends than LF, much that waits already,
               or one that may be too large. Whoever makes use of the frames has the rest kept by `skip_to`.
        """
        data = bytes(self._pending) + chunk if self._pending else chunk
        end = data.rfind(b"\n\n") + 2
        if end == 1 or len(self._pending) > _MUCH_BYTES or end > self._max_event_bytes or b"\r" in data:
            return b"", data
        return data[:end], data[end:]

    def skip_to(self, rest: bytes) -> None:
        """Go on behind frames that `whole` has returned."""
        self._started = True
        self._pending.clear()
        self._keep(rest)

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that are whole now.

        Raises: EventTooLarge; the stream is then beyond use.
        """
        if self._pending or b"\r" in chunk:
            return self._feed_slowly(chunk)
        frames = []
        start = 0
        while (end := chunk.find(b"\n\n", start) + 2) > 1:
            raw = chunk[start:end]
            if raw[:6] == b"data: " and raw.find(b"\n") == len(raw) - 2 and len(raw) <= self._max_event_bytes:
                self._started = True
                frames.append(Frame(raw, b"", raw[6:-2]))  # the form nearly every frame has
            else:
                frames.append(self._frame(raw))
            start = end
        if start < len(chunk):
            self._keep(chunk[start:])
        return frames

    def end(self) -> Frame | None:
        """Return what is left of a stream that stops without a blank line, the line added: more may have to follow."""
        if not self._pending:
            return None
        raw = bytes(self._pending)
        self._pending.clear()
        return self._frame(raw + b"\n\n" if raw.strip(b"\r\n") else raw)

    def _feed_slowly(self, chunk: bytes) -> list[Frame]:
        pending = self._pending
        pending += chunk
        frames = []
        start = 0
        for match in _BLANK_LINE.finditer(pending, max(0, self._searched - 1)):
            frames.append(self._frame(bytes(pending[start : match.end()])))
            start = match.end()
        del pending[:start]
        self._keep(b"")
        return frames

    def _keep(self, rest: bytes) -> None:
        self._pending += rest
        self._searched = len(self._pending)
        self._check_size(self._searched)

    def _check_size(self, size: int) -> None:
        if size > self._max_event_bytes:
            raise EventTooLarge(f"an event of the stream is larger than {self._max_event_bytes} bytes")

    def _frame(self, raw: bytes) -> Frame:
        self._check_size(len(raw))
        if not self._started:
            raw = raw.removeprefix(_BOM)
            self._started = True
        return _parse(raw)


def _parse(raw: bytes) -> Frame:
    event = b""
    data: list[bytes] = []
    for line in raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
        elif name == b"error":
            event = b"error"
            data.append(value)
    return Frame(raw, event, b"\n".join(data) if data else None)
