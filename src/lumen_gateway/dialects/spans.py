"""The top level of a JSON body as raw spans, and the checks a body must pass before anything reads it.

Pass-through never decodes what it does not need: a body becomes a dict of field name -> the bytes of its value, an edit
replaces a span, and `join` writes the body again. What was not edited keeps its spelling, unknown fields included.

msgspec checks the grammar, escapes and surrogates of what it skips, but lets invalid UTF-8, numbers of any size and
nesting up to the interpreter's own limit through, so those are checked here. A cheap look at the whole body comes
first: only a body that could be at fault is looked at again without its strings.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator
from itertools import accumulate

import msgspec

from lumen_gateway.errors import Failure, invalid

MAX_DEPTH = 256
MAX_DIGITS = 64  # of one number, its exponent not counted; the longest decimal spelling in use, IBM decimal128, has 34

Fields = dict[str, msgspec.Raw]
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What msgspec raises for bytes that are not the JSON they should be."""

_decode = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.Encoder().encode

_BOM = b"\xef\xbb\xbf"
_WINDOW = 65_536  # bytes looked at in one go by the exact checks; bounds their memory
# Every digit one symbol, every opener one symbol; signs and points vanish, so that digits of one number touch.
_SHAPE = bytes.maketrans(b"123456789E{", b"000000000e[")
_IGNORED = b".+-"
_LONG_NUMBER = b"0" * (MAX_DIGITS + 1)
_DIGITS = b"000"  # what either of the two below holds; most bodies are done after this one search
_BIG_EXPONENT = b"0e000"  # 64 digits and two digits of exponent stay far below the largest double
_NUMBERS = bytes(byte if byte in b"0123456789+-.eE" else 0x20 for byte in range(256))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_LONE_SURROGATE = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]", re.DOTALL)


def split(body: bytes) -> Fields:
    """Return the top-level fields of a JSON object, each as the bytes of its value.

    Shape:  of duplicate keys the last wins, at the place of the first.
    Raises: Failure `LM-1001` that says what is wrong, never what the body holds.
    """
    try:
        if not body.isascii():
            body.decode()
        fields = _decode(body)
    except msgspec.ValidationError:
        raise invalid("The request body must be a JSON object.") from None
    except UNREADABLE as exc:
        raise _unreadable(body, exc) from None
    shape = body.translate(_SHAPE, _IGNORED)
    if shape.count(b"[") > MAX_DEPTH:
        _check_depth(body)
    if _DIGITS in shape and (_LONG_NUMBER in shape or _BIG_EXPONENT in shape):
        _check_numbers(body)
    return fields


def join(fields: Fields) -> bytes:
    """Write the body again, in the order of the dict."""
    return _encode(fields)


def _unreadable(body: bytes, exc: Exception) -> Failure:
    if isinstance(exc, RecursionError):
        return _too_deep()
    if isinstance(exc, UnicodeDecodeError):
        return invalid(f"The request body is not valid UTF-8: byte {exc.start} starts no character.")
    if body.startswith(_BOM):
        return invalid("The request body starts with a byte order mark. Send JSON in UTF-8 without one.")
    if not body.strip():
        return invalid("The request body is empty. Send a JSON object.")
    if _LONE_SURROGATE.search(body.replace(b"\\\\", b"--")):
        return invalid(
            "The request body holds half of a surrogate pair (\\ud800 to \\udfff alone), which is no character."
        )
    return invalid("The request body is not valid JSON.")


def _too_deep() -> Failure:
    return invalid(f"The request body nests deeper than {MAX_DEPTH} levels.")


def _check_depth(body: bytes) -> None:
    depth = 0
    for text in _outside_strings(body):
        steps = text.translate(_STEPS, _NOT_BRACKETS)
        opened = steps.count(1)
        if depth + opened > MAX_DEPTH and max(accumulate(array("b", steps), initial=depth)) > MAX_DEPTH:
            raise _too_deep()
        depth += 2 * opened - len(steps)


def _check_numbers(body: bytes) -> None:
    for text in _outside_strings(body):
        shape = text.translate(_SHAPE, _IGNORED)
        if _LONG_NUMBER in shape:
            raise invalid(f"The request body holds a number of more than {MAX_DIGITS} digits.")
        if _BIG_EXPONENT in shape:
            numbers = text.replace(b"true", b"").replace(b"false", b"").translate(_NUMBERS).split()
            if not all(map(math.isfinite, map(float, numbers))):
                raise invalid("The request body holds a number that is not finite.")


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """Yield what stands outside of string literals of valid JSON, cut at commas only, never inside a number."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    inside = start = 0
    while start < len(body):
        end = body.find(b",", start + _WINDOW)
        if end < 0:
            end = len(body)
        pieces = body[start:end].split(b'"')
        yield b" ".join(pieces[inside::2])
        if len(pieces) % 2 == 0:
            inside = 1 - inside
        start = end
