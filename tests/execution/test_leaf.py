"""What is known of a leaf before a request comes: it holds a key, so it must not tell it."""

from __future__ import annotations

import msgspec
from tests.execution.staging import leaf


def test_leaf_prints_without_its_keys() -> None:
    shown = repr(leaf("a", "canary"))
    assert "key-canary" not in shown
    assert "***" in shown


def test_leaf_and_its_keys_are_values() -> None:
    assert leaf("a", "one") == leaf("a", "one")
    assert leaf("a", "one").credentials[0] != leaf("a", "two").credentials[0]


def test_stream_has_a_head_of_its_own_only_where_it_differs() -> None:
    usual = leaf("a")
    other = msgspec.structs.replace(usual, stream_heads={"chat": b"POST /stream HTTP/1.1\r\n"})
    assert usual.head("chat", stream=True) == usual.head("chat", stream=False) == usual.heads["chat"]
    assert other.head("chat", stream=True) == b"POST /stream HTTP/1.1\r\n"
    assert other.head("chat", stream=False) == usual.heads["chat"]
