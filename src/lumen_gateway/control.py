"""What keeper and worker say to each other: length-prefixed MessagePack over one socket pair per worker.

Down go documents, questions and the order to drain; up come what became of a document and what was counted. Both ways
are bounded: a peer that does not read is dropped, not buffered for. The end of the stream is a message too: a worker
whose keeper is gone drains and exits.
"""

from __future__ import annotations

import asyncio
import struct

import msgspec

from lumen_gateway.config.schema import Config
from lumen_gateway.telemetry.metrics import State

MAX_FRAME_BYTES = 256 * 1024 * 1024
STALLED_S = 30.0
_LENGTH = struct.Struct(">I")


class Load(msgspec.Struct, tag="load", frozen=True):
    """Serve this document from now on. `secrets` holds the provider keys it names, by environment variable."""

    hash: str
    config: Config
    secrets: dict[str, str]

    def __repr__(self) -> str:
        return f"Load({self.hash[:12]})"


class Report(msgspec.Struct, tag="report", frozen=True):
    """Say what you have counted; the answer carries the number."""

    number: int


class Drain(msgspec.Struct, tag="drain", frozen=True):
    """Accept nothing new, finish what runs, exit; cut what still runs when the time is up."""

    within_s: float


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """The worker serves the document with this hash."""

    hash: str


class Counted(msgspec.Struct, tag="counted", frozen=True):
    """Everything the worker has counted since it started."""

    number: int
    state: State


Message = Load | Report | Drain | Loaded | Counted

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder[Message](Message)


def encode(message: Message) -> bytes:
    """Return a message as it goes over the wire."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


async def send(writer: asyncio.StreamWriter, message: Message) -> None:
    """Send a message and wait until the peer has room for the next.

    Raises: TimeoutError or ConnectionError when the peer does not read.
    """
    writer.write(encode(message))
    async with asyncio.timeout(STALLED_S):
        await writer.drain()


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """Return the next message, None at the end of the stream, however it ended.

    Raises: ValueError for what is not one of ours.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_FRAME_BYTES:
            raise ValueError(f"a control frame of {length} bytes")
        message: Message = _decoder.decode(await reader.readexactly(length))
        return message
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except msgspec.DecodeError as exc:
        raise ValueError("a control frame that is not one of ours") from exc
