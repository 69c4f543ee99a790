"""A client of the running program that writes its own bytes, for what no HTTP library would send."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.process.program import HOST, PATIENCE_S

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def chat(model: str, *lines: str, stream: bool = False) -> bytes:
    """Return a whole chat request, with further header lines."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": stream}).encode()
    return head(*lines, f"content-length: {len(body)}") + body


def head(*lines: str) -> bytes:
    """Return the head of a chat request with these header lines."""
    usual = ("POST /v1/chat/completions HTTP/1.1", "host: gateway", "content-type: application/json")
    return "\r\n".join([*usual, *lines, "", ""]).encode()


@asynccontextmanager
async def connected(port: int, receive_bytes: int | None = None) -> AsyncIterator[Connection]:
    """Hold a connection of its own, which may be one that takes little ahead of its reader."""
    client = socket.socket()
    client.setblocking(False)
    if receive_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.get_running_loop().sock_connect(client, (HOST, port))
        reader, writer = await asyncio.open_connection(sock=client)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def to_the_end(reader: asyncio.StreamReader) -> bytes:
    """Return everything up to the end of the connection, a reset included."""
    got = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while piece := await reader.read(65_536):
                got += piece
    except ConnectionError:
        pass
    return got


async def exchange(port: int, *pieces: bytes) -> bytes:
    """Send these bytes on a connection of their own and return what comes back until it closes."""
    async with connected(port) as (reader, writer):
        for piece in pieces:
            writer.write(piece)
        return await to_the_end(reader)
