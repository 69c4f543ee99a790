"""Rules of a request's head and body, one by one. What llhttp refuses before is proven in `tests/faults`."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.framing import Framing, decode_body, head_bytes, read_framing

HOST = (b"host", b"gateway:8080")
LIMIT = 1000


def framing(*headers: tuple[bytes, bytes], version: str = "1.1", target: bytes = b"/v1/models") -> Framing:
    return read_framing(version, target, headers, dict(reversed(headers)))


def test_plain_head_says_how_long_its_body_is() -> None:
    assert framing(HOST, (b"content-length", b"12")) == Framing(12, b"", expects_continue=False)
    assert framing(HOST) == Framing(0, b"", expects_continue=False)
    assert framing(HOST, (b"transfer-encoding", b"Chunked")).length == 0


def test_coding_and_expectation_are_read_in_any_case() -> None:
    read = framing(HOST, (b"content-encoding", b"GZIP"), (b"expect", b"100-Continue"))
    assert read == Framing(0, b"gzip", expects_continue=True)


def test_http_1_0_expects_nothing() -> None:
    assert not framing((b"expect", b"100-continue"), version="1.0").expects_continue


@pytest.mark.parametrize("value", [b"+1", b"-1", b"1 ", b" 1", b"1,1", b"0x1", b"1_0", b"", b"\xb2", b"1.0", b"1e1"])
def test_length_is_plain_digits(value: bytes) -> None:
    with pytest.raises(Failure, match="plain digits"):
        framing(HOST, (b"content-length", value))


@pytest.mark.parametrize("value", [b"gzip, chunked", b",chunked", b"chunked, identity", b"identity", b"xchunked", b""])
def test_only_transfer_coding_is_chunked_alone(value: bytes) -> None:
    with pytest.raises(Failure, match="transfer encoding"):
        framing(HOST, (b"transfer-encoding", value))


def test_http_1_0_knows_no_transfer_coding() -> None:
    with pytest.raises(Failure, match="transfer encoding"):
        framing(HOST, (b"transfer-encoding", b"chunked"), version="1.0")


@pytest.mark.parametrize(
    "name", [b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"expect"], ids=bytes.decode
)
def test_field_that_frames_is_sent_once(name: bytes) -> None:
    value = {b"content-length": b"1", b"expect": b"100-continue"}.get(name, b"chunked")
    with pytest.raises(Failure, match="only once"):
        framing(HOST, (name, value), (name, value))


def test_other_fields_may_repeat() -> None:
    assert framing(HOST, (b"accept", b"a"), (b"accept", b"b")).length == 0


def test_host_is_required_on_1_1_only() -> None:
    with pytest.raises(Failure, match="host"):
        framing()
    assert framing(version="1.0").length == 0


@pytest.mark.parametrize("host", [b"a b", b"h/#@x", b"user@h", b"h\tx", b"h?x", b"\xe4", b"<h>"])
def test_host_is_a_name_or_an_address(host: bytes) -> None:
    with pytest.raises(Failure, match="name or address"):
        framing((b"host", host))


@pytest.mark.parametrize(
    "host", [b"h", b"h:80", b"127.0.0.1:8080", b"[::1]:8080", b"a_b.example", b"", b"xn--e1afmkfd"]
)
def test_usual_hosts_pass(host: bytes) -> None:
    assert framing((b"host", host)).length == 0


@pytest.mark.parametrize("target", [b"http://gateway/v1/models", b"*", b"gateway:80", b"v1/models"])
def test_target_is_a_path(target: bytes) -> None:
    with pytest.raises(Failure, match="begins with /"):
        framing(HOST, target=target)


@pytest.mark.parametrize("version", ["0.9", "2.0"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(Failure, match=r"HTTP/1\.1"):
        framing(HOST, version=version)


def test_other_expectations_are_refused() -> None:
    with pytest.raises(Failure, match="100-continue"):
        framing(HOST, (b"expect", b"200-ok"))


def test_refusals_name_the_rule_and_never_the_value() -> None:
    with pytest.raises(Failure) as caught:
        framing((b"host", b"secret value"))
    assert caught.value.kind is Kind.INVALID_REQUEST
    assert "secret" not in caught.value.message


def test_head_is_as_large_as_its_lines() -> None:
    assert head_bytes(b"/a", [(b"host", b"x"), (b"b", b"")]) == len(b"/ahost: x\r\nb: \r\n")


@given(st.binary(max_size=2 * LIMIT))
def test_gzip_body_is_decoded_up_to_the_limit(body: bytes) -> None:
    if len(body) <= LIMIT:
        assert decode_body(gzip.compress(body), b"gzip", LIMIT) == body
    else:
        with pytest.raises(Failure, match=f"{LIMIT} bytes") as caught:
            decode_body(gzip.compress(body), b"gzip", LIMIT)
        assert caught.value.kind is Kind.BODY_TOO_LARGE


@pytest.mark.parametrize("extra", [0, 1])
def test_limit_after_decoding_is_exact(extra: int) -> None:
    body = bytes(LIMIT + extra)
    if extra:
        with pytest.raises(Failure):
            decode_body(gzip.compress(body), b"gzip", LIMIT)
    else:
        assert decode_body(gzip.compress(body), b"gzip", LIMIT) == body


WHOLE = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize("body", [b"", b"{}", WHOLE[:-1], WHOLE + b"x", WHOLE + WHOLE, WHOLE[:-8] + bytes(8)])
def test_gzip_body_is_one_whole_member(body: bytes) -> None:
    with pytest.raises(Failure, match="gzip") as caught:
        decode_body(body, b"gzip", LIMIT)
    assert caught.value.kind is Kind.INVALID_REQUEST


@pytest.mark.parametrize("encoding", [b"", b"identity"])
def test_plain_body_stays_as_it_is(encoding: bytes) -> None:
    assert decode_body(b"{}", encoding, LIMIT) == b"{}"


@pytest.mark.parametrize("encoding", [b"br", b"deflate", b"zstd", b"gzip, gzip", b"x-gzip"])
def test_other_codings_are_415_and_say_what_is_taken(encoding: bytes) -> None:
    with pytest.raises(Failure) as caught:
        decode_body(b"{}", encoding, LIMIT)
    assert (caught.value.status, caught.value.headers) == (415, (("accept-encoding", "gzip"),))
