"""Values that must not be printed."""

from __future__ import annotations

import hmac


class Secret:
    """A credential: prints as ***, compares in constant time, and gives itself up only to `reveal`."""

    __slots__ = ("_value",)

    def __init__(self, value: str | bytes) -> None:
        self._value = value.encode() if isinstance(value, str) else value

    def reveal(self) -> bytes:
        """Return the bytes, for the one place that puts them on the wire."""
        return self._value

    def matches(self, other: bytes) -> bool:
        """Compare as bytes: `hmac.compare_digest` raises on non-ASCII text."""
        return hmac.compare_digest(self._value, other)

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other._value)

    def __hash__(self) -> int:
        return hash(self._value)
