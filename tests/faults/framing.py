"""Requests that could be read two ways, and plain ones that look odd: the cases of the framing matrix.

A case of `REFUSED` is one way to smuggle a request past somebody; a case of `SERVED` has one reading, which stands
beside it: the body.
"""

from __future__ import annotations

from tests.lanes import CANARY

LINE = b"POST /v1/x HTTP/1.1\r\n"
HOST = b"host: gateway\r\n"
HEAD = LINE + HOST
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def length(value: bytes) -> bytes:
    return HEAD + b"content-length:" + value + b"\r\n\r\nx"


def coding(value: bytes) -> bytes:
    return HEAD + b"transfer-encoding:" + value + b"\r\n\r\n" + END


def field(line: bytes) -> bytes:
    return HEAD + line + b"\r\n\r\n"


def target(path: bytes) -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n"


REFUSED = {
    # Two statements about the length.
    "length and chunked": HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n" + END,
    "chunked and length": HEAD + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n" + END,
    "length 0 and chunked": HEAD + b"content-length: 0\r\ntransfer-encoding: chunked\r\n\r\n" + END,
    "two lengths": HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nxy",
    "the same length twice": HEAD + b"content-length: 1\r\ncontent-length: 1\r\n\r\nx",
    "two lengths in other cases": HEAD + b"Content-Length: 1\r\nCONTENT-LENGTH: 2\r\n\r\nxy",
    # What a length may not be.
    "length +1": length(b" +1"),
    "length -1": length(b" -1"),
    "length 1,1": length(b" 1,1"),
    "length 1, 1": length(b" 1, 1"),
    "length 0x1": length(b" 0x1"),
    "length 1_0": length(b" 1_0"),
    "length 1 0": length(b" 1 0"),
    "length 1.0": length(b" 1.0"),
    "length 1e0": length(b" 1e0"),
    "length with a space behind": length(b" 1 "),
    "length with a tab behind": length(b" 1\t"),
    "length in quotes": length(b' "1"'),
    "length empty": length(b""),
    "length of another script": length(b" \xd9\xa1"),
    "length beyond 64 bits": length(b" 99999999999999999999999"),
    "length with a vertical tab": length(b" \x0b1"),
    # Transfer codings.
    "gzip, chunked": coding(b" gzip, chunked"),
    "chunked, gzip": coding(b" chunked, gzip"),
    "chunked, chunked": coding(b" chunked, chunked"),
    "chunked twice": HEAD + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n" + END,
    "identity, then chunked": HEAD + b"transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n" + END,
    "identity": coding(b" identity"),
    "xchunked": coding(b" xchunked"),
    "chunked;q=1": coding(b" chunked;q=1"),
    "chunked with a comma behind": coding(b" chunked,"),
    "chunked with a comma before": coding(b" ,chunked"),
    "chunked in quotes": coding(b' "chunked"'),
    "chunked behind a vertical tab": coding(b" \x0bchunked"),
    "chunked with a space behind": coding(b" chunked "),
    "no coding": coding(b""),
    "chunked on HTTP/1.0": b"POST /v1/x HTTP/1.0\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n" + END,
    # Lines and names.
    "bare LF behind the request line": b"POST /v1/x HTTP/1.1\n" + HOST + b"\r\n",
    "bare LF behind a field": HEAD + b"a: b\nc: d\r\n\r\n",
    "bare LF as the empty line": HEAD + b"\n",
    "bare LF twice": b"POST /v1/x HTTP/1.1\r\nhost: gateway\n\n",
    "bare CR in a field": HEAD + b"a: b\rc: d\r\n\r\n",
    "bare CR behind a field": HEAD + b"a: b\r\r\n\r\n",
    "bare CR in the request line": b"POST /v1/x HTTP/1.1\r" + HOST + b"\r\n",
    "NUL in a value": field(b"a: b\0c"),
    "NUL in a name": field(b"a\0b: c"),
    "control character in a value": field(b"a: b\x01c"),
    "DEL in a value": field(b"a: b\x7fc"),
    "folded line": field(b"a: b\r\n c"),
    "folded length": HEAD + b"content-length:\r\n 1\r\n\r\nx",
    "folded first line": LINE + b" host: gateway\r\n\r\n",
    "space before the colon": HEAD + b"content-length : 1\r\n\r\nx",
    "tab before the colon": HEAD + b"content-length\t: 1\r\n\r\nx",
    "space in a name": field(b"content length: 1"),
    "bracket in a name": field(b"content(length: 1"),
    "letter with an accent in a name": field(b"conten\xc3\xa9: 1"),
    "no colon": field(b"content-length"),
    "no name": field(b": 1"),
    # Chunks.
    "chunk extension with LF": CHUNKED + b"1;a\nb\r\nx\r\n" + END,
    "chunk extension with CR": CHUNKED + b"1;a\rb\r\nx\r\n" + END,
    "chunk extension with NUL": CHUNKED + b"1;a\0b\r\nx\r\n" + END,
    "chunk size with LF alone": CHUNKED + b"1\nx\r\n" + END,
    "chunk size with a space": CHUNKED + b"1 \r\nx\r\n" + END,
    "chunk size with a space before": CHUNKED + b" 1\r\nx\r\n" + END,
    "chunk size +1": CHUNKED + b"+1\r\nx\r\n" + END,
    "chunk size -1": CHUNKED + b"-1\r\nx\r\n" + END,
    "chunk size 0x1": CHUNKED + b"0x1\r\nx\r\n" + END,
    "chunk size empty": CHUNKED + b"\r\nx\r\n" + END,
    "chunk size no number": CHUNKED + b"g\r\nx\r\n" + END,
    "chunk size beyond 64 bits": CHUNKED + b"fffffffffffffffff\r\nx\r\n" + END,
    "chunk size 1_0": CHUNKED + b"1_0\r\nx\r\n" + END,
    "chunk longer than its size": CHUNKED + b"1\r\nxy\r\n" + END,
    "chunk with LF behind": CHUNKED + b"1\r\nx\n" + END,
    "chunk with CR behind": CHUNKED + b"1\r\nx\r" + END,
    "chunk without an end": CHUNKED + b"1\r\nx" + END,
    "last chunk with LF": CHUNKED + b"0\r\n\n",
    "last chunk with two LF": CHUNKED + b"0\n\n",
    "length as a trailer": CHUNKED + b"0\r\ncontent-length: 5\r\n\r\n",
    "coding as a trailer": CHUNKED + b"0\r\ntransfer-encoding: chunked\r\n\r\n",
    "NUL in a trailer": CHUNKED + b"0\r\na: \0\r\n\r\n",
    # Host and target.
    "no host": LINE + b"\r\n",
    "two hosts": HEAD + b"host: other\r\n\r\n",
    "the same host twice": HEAD + HOST + b"\r\n",
    "host with a path": LINE + b"host: h/#@x\r\n\r\n",
    "host with a user": LINE + b"host: user@gateway\r\n\r\n",
    "host with a space": LINE + b"host: gate way\r\n\r\n",
    "list of hosts": LINE + b"host: gateway, other\r\n\r\n",
    "absolute form": target(b"http://gateway/v1/x"),
    "absolute form of another host": target(b"http://other/v1/x"),
    "authority form": b"CONNECT gateway:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "asterisk form": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "space in the target": target(b"/v1/x y"),
    "tab in the target": target(b"/v1/x\ty"),
    "NUL in the target": target(b"/v1/\0x"),
    "byte above 127 in the target": target(b"/v1/\xffx"),
    "space behind the version": b"GET /v1/x HTTP/1.1 \r\n" + HOST + b"\r\n",
    # Versions, methods, expectations.
    "HTTP/0.9": b"GET /v1/x\r\n\r\n",
    "HTTP/0.9, said": b"GET /v1/x HTTP/0.9\r\n\r\n",
    "HTTP/2.0": b"GET /v1/x HTTP/2.0\r\n" + HOST + b"\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": b"GET /v1/x HTTP/1.2\r\n" + HOST + b"\r\n",
    "http/1.1": b"GET /v1/x http/1.1\r\n" + HOST + b"\r\n",
    "method in lower case": b"post /v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "unknown method": b"SMUGGLE /v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "another expectation": HEAD + b"expect: 200-ok\r\ncontent-length: 1\r\n\r\nx",
    "two expectations": HEAD + b"expect: 100-continue\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\nx",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}

SERVED = {
    "length": (length(b" 1"), b"x"),
    "length behind a tab": (length(b"\t1"), b"x"),
    "length with leading zeros": (length(b" 0001"), b"x"),
    "chunked": (CHUNKED + b"1\r\nx\r\n" + END, b"x"),
    "Chunked": (coding(b" Chunked"), b""),
    "chunk size with leading zeros": (CHUNKED + b"0001\r\nx\r\n" + END, b"x"),
    "chunk extension": (CHUNKED + b"1;a=b\r\nx\r\n" + END, b"x"),
    "trailer": (CHUNKED + b"1\r\nx\r\n0\r\na: b\r\n\r\n", b"x"),
    "no body": (field(b"a: b"), b""),
    "GET with a body": (b"GET /v1/x HTTP/1.1\r\n" + HOST + b"content-length: 1\r\n\r\nx", b"x"),
    "canary as the body": (HEAD + b"content-length: %d\r\n\r\n" % len(CANARY) + CANARY, CANARY),
    "canary as a chunk": (CHUNKED + b"%x\r\n%b\r\n" % (len(CANARY), CANARY) + END, CANARY),
    "underscore for a dash": (field(b"content_length: 5"), b""),
    "underscore in a coding": (field(b"transfer_encoding: chunked"), b""),
    "length of something else": (field(b"x-content-length: 5"), b""),
    "method override": (field(b"x-http-method-override: DELETE"), b""),
    "forwarded": (field(b"x-forwarded-for: 127.0.0.1\r\nx-original-url: /admin"), b""),
    "bytes above 127 in a value": (field(b"a: \xff"), b""),
    "empty lines before": (b"\r\n\r\n" + field(b"a: b"), b""),
}
