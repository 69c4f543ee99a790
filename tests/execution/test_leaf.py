"""What is known of a leaf before a request comes: it holds a key, so it must not tell it."""

from __future__ import annotations

from tests.execution.staging import leaf


def test_leaf_prints_without_its_keys() -> None:
    shown = repr(leaf("a", "canary"))
    assert "key-canary" not in shown
    assert "***" in shown


def test_leaf_and_its_keys_are_values() -> None:
    assert leaf("a", "one") == leaf("a", "one")
    assert leaf("a", "one").credentials[0] != leaf("a", "two").credentials[0]
