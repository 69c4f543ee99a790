"""The metadata header: what is taken, and what drops it whole."""

from __future__ import annotations

import json

import pytest

from lumen_gateway.routing.facts.metadata import read_metadata


def test_strings_numbers_and_booleans_keep_their_types() -> None:
    metadata = read_metadata(b'{"plan": "pro", "seats": 3, "score": 0.5, "trial": false, "caf\xc3\xa9": ""}')
    assert metadata == {"plan": "pro", "seats": 3.0, "score": 0.5, "trial": False, "café": ""}
    assert isinstance(metadata["seats"], float)
    assert metadata["trial"] is False


def test_everything_at_its_bound_is_taken() -> None:
    assert read_metadata(json.dumps({f"{n:064}": "x" * 150 for n in range(16)}).encode())
    assert read_metadata(json.dumps({"k": "é" * 128}, ensure_ascii=False).encode())
    assert read_metadata(b"{}" + b" " * 4094) == {}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"plan=pro",
        b"[]",
        b'"pro"',
        b"null",
        b'{"plan": null}',
        b'{"plan": ["pro"]}',
        b'{"plan": {"name": "pro"}}',
        b'{"plan": "pro"',
        b'{"plan": "\xff"}',
        b'{"n": 1e999}',
        b'{"n": NaN}',
        b'{"n": ' + b"9" * 400 + b"}",
        json.dumps({str(n): n for n in range(17)}).encode(),
        json.dumps({"k" * 65: 1}).encode(),
        json.dumps({"é" * 33: 1}, ensure_ascii=False).encode(),
        json.dumps({"k": "x" * 257}).encode(),
        json.dumps({"k": "é" * 129}, ensure_ascii=False).encode(),
        b'{"k": "x"}' + b" " * 4090,
        b"[" * 4096,
    ],
)
def test_header_that_breaks_any_rule_is_dropped_whole(value: bytes) -> None:
    assert read_metadata(value) is None
