"""Content codings of an upstream's body, undone piece by piece.

We ask for `identity`; some upstreams compress anyway. A piece is at most `PIECE_BYTES`, whatever the ratio, so that a
bomb is cut by its reader's own limit and never held whole. Source: RFC 9110 section 8.4, RFC 1950 to 1952.
"""

from __future__ import annotations

import zlib

from lumen_gateway.errors import Failure, Kind

PIECE_BYTES = 65_536

_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's names for the three containers


class Decoder:
    """Undoes gzip or deflate: `feed` what arrived, take pieces with `next` until it has none, `finish` at the end.

    Raises: Failure(MALFORMED) for an unknown coding, bad data, data after the end, or an end that came too soon.
    """

    def __init__(self, coding: bytes) -> None:
        coding = coding.strip().lower()
        if coding not in (b"gzip", b"x-gzip", b"deflate"):
            raise Failure(Kind.MALFORMED, "the answer's body has a content encoding that was not asked for")
        self._gzip = coding != b"deflate"
        self._inflate = zlib.decompressobj(_GZIP) if self._gzip else None
        self._input = b""
        self._more = False  # zlib may hold output though it has eaten all input
        self._untouched = True

    def feed(self, data: bytes) -> None:
        """Take encoded bytes."""
        self._input += data
        self._untouched = False

    def next(self) -> bytes:
        """Return the next decoded piece, or nothing when more input is needed."""
        if self._inflate is None:
            if len(self._input) < 2:
                return b""
            self._inflate = zlib.decompressobj(_deflate_container(self._input))
        while self._input or self._more:
            piece = self._step(self._inflate)
            if piece:
                return piece
        return b""

    def finish(self) -> None:
        """Check that the coded data ended where the body did."""
        if not self._untouched and (self._inflate is None or not self._inflate.eof):
            raise Failure(Kind.MALFORMED, "the answer's compressed body is cut short")

    def _step(self, inflate: zlib._Decompress) -> bytes:
        if inflate.eof:
            inflate = self._inflate = self._next_member()
        try:
            piece = inflate.decompress(self._input, PIECE_BYTES)
        except zlib.error as exc:
            raise Failure(Kind.MALFORMED, "the answer's compressed body is broken") from exc
        self._input = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        self._more = len(piece) == PIECE_BYTES and not inflate.eof
        return piece

    def _next_member(self) -> zlib._Decompress:
        """RFC 1952 section 2.2: a gzip body may be several members; deflate has no such thing."""
        if not self._gzip:
            raise Failure(Kind.MALFORMED, "the answer's compressed body has data after its end")
        return zlib.decompressobj(_GZIP)


def _deflate_container(start: bytes) -> int:
    """`deflate` means zlib's container (RFC 9110 section 8.4.1.2), but some servers send the bare stream."""
    zlib_header = start[0] & 0x0F == 8 and (start[0] << 8 | start[1]) % 31 == 0
    return _ZLIB if zlib_header else _RAW
