"""The metadata header: what a client says about a request, for rules, rows and metric labels.

A flat JSON object of strings, numbers and booleans within narrow bounds. One that breaks a rule is dropped whole: half
of what a client said could route its request elsewhere without anyone noticing.
"""

from __future__ import annotations

import math

import msgspec

from lumen_gateway.dialects.spans import UNREADABLE

MAX_HEADER_BYTES = 4096
MAX_KEYS = 16
MAX_KEY_BYTES = 64
MAX_VALUE_BYTES = 256

Metadata = dict[str, str | float | bool]
_decode = msgspec.json.Decoder(dict[str, str | bool | int | float]).decode


def read_metadata(value: bytes) -> Metadata | None:
    """Return the metadata of a header value, None if it breaks any rule.

    Shape: at most 16 entries; numbers are finite and become floats.
    """
    if len(value) > MAX_HEADER_BYTES:
        return None
    try:
        entries = _decode(value)
    except UNREADABLE:
        return None
    if len(entries) > MAX_KEYS:
        return None
    metadata: Metadata = {}
    for key, entry in entries.items():
        plain = _plain(entry)
        if plain is None or len(key.encode()) > MAX_KEY_BYTES:
            return None
        metadata[key] = plain
    return metadata


def _plain(entry: str | float | bool) -> str | float | bool | None:
    if isinstance(entry, bool):
        return entry
    if isinstance(entry, str):
        return entry if len(entry.encode()) <= MAX_VALUE_BYTES else None
    try:
        number = float(entry)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
