"""Content codings are undone in bounded pieces, however the bytes are cut, and faults are seen."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.transport.encoding import PIECE_BYTES, Decoder

TEXT = b'{"choices": [{"message": {"content": "hello hello hello"}}]}' * 50


def bare(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(data) + squeeze.flush()


CODED = {
    "gzip": (b"gzip", gzip.compress(TEXT)),
    "x-gzip": (b" X-GZIP ", gzip.compress(TEXT)),
    "two members": (b"gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])),
    "empty member between": (b"gzip", gzip.compress(TEXT[:9]) + gzip.compress(b"") + gzip.compress(TEXT[9:])),
    "deflate": (b"deflate", zlib.compress(TEXT)),
    "bare deflate": (b"deflate", bare(TEXT)),
}


def decode(coding: bytes, pieces: list[bytes]) -> bytes:
    decoder, whole = Decoder(coding), b""
    for piece in pieces:
        decoder.feed(piece)
        while decoded := decoder.next():
            assert len(decoded) <= PIECE_BYTES
            whole += decoded
    decoder.finish()
    return whole


def refused(coding: bytes, data: bytes) -> str:
    with pytest.raises(Failure) as caught:
        decode(coding, [data])
    assert caught.value.kind is Kind.MALFORMED
    return caught.value.message


@pytest.mark.parametrize(("coding", "coded"), CODED.values(), ids=CODED)
def test_body_comes_back_however_it_is_cut(coding: bytes, coded: bytes) -> None:
    assert decode(coding, [coded]) == TEXT
    assert decode(coding, [coded[at : at + 1] for at in range(len(coded))]) == TEXT
    for at in range(len(coded)):
        assert decode(coding, [coded[:at], coded[at:]]) == TEXT


@given(data=st.binary(max_size=200_000), size=st.integers(1, 70_000))
def test_any_body_comes_back(data: bytes, size: int) -> None:
    coded = gzip.compress(data, compresslevel=1)
    assert decode(b"gzip", [coded[at : at + size] for at in range(0, len(coded), size)]) == data


def test_bomb_is_decoded_no_further_than_it_is_read() -> None:
    decoder = Decoder(b"gzip")
    decoder.feed(gzip.compress(bytes(20_000_000)))
    assert [len(decoder.next()) for _ in range(5)] == [PIECE_BYTES] * 5


@pytest.mark.parametrize("cut", [1, 8, 9])
@pytest.mark.parametrize(("coding", "coded"), CODED.values(), ids=CODED)
def test_missing_end_is_seen(coding: bytes, coded: bytes, cut: int) -> None:
    if coding == b"deflate" and cut > 1:
        cut = 4
    assert "cut short" in refused(coding, coded[:-cut])


@pytest.mark.parametrize("start", [b"gzip", b"deflate"])
def test_broken_data_is_refused(start: bytes) -> None:
    assert "broken" in refused(start, b"\xff" * 40)


def test_wrong_checksum_is_refused() -> None:
    coded = bytearray(gzip.compress(TEXT))
    coded[-8] ^= 1
    assert "broken" in refused(b"gzip", bytes(coded))


def test_data_after_the_end_is_refused() -> None:
    assert "broken" in refused(b"gzip", gzip.compress(TEXT) + b"more")
    assert "after its end" in refused(b"deflate", zlib.compress(TEXT) + b"more")


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"compress", b"gzip, gzip", b"gzip,br", b"\xff"])
def test_other_codings_are_refused(coding: bytes) -> None:
    assert "was not asked for" in refused(coding, b"")


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_empty_body_is_empty(coding: bytes) -> None:
    assert decode(coding, []) == b""


def test_single_byte_is_no_deflate_body() -> None:
    assert "cut short" in refused(b"deflate", b"\x78")
