"""Facts: what a rule may ask about a request. An open, lazy set: each is computed when first asked for, and once.

A request that meets no rule pays for none of them. Where facts come from differs by capability (`inputs.py`); which
ones a rule may name, and how they compare, is `routing/conditions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

Scalar = str | float | bool
Sources = Mapping[str, Callable[[Any], object]]
"""Fact name -> how to compute it from the request."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_ASKABLE = ("stream", "has_images", "has_tools", "input_tokens", "documents")


class Facts:
    """The facts of one request. One that its kind of request does not have is None, and no rule on it holds.

    Positional arguments and slots keep making one near 0.2 us; every request for a virtual model makes one.
    """

    __slots__ = ("_sources", "_request", "group_names", "metadata", "headers", *_ASKABLE)

    group_names: tuple[str, ...]  # of the caller's budget group: its id and its name
    metadata: Mapping[str, Scalar]
    headers: Mapping[str, str]  # lower-case names
    stream: bool | None
    has_images: bool | None
    has_tools: bool | None
    input_tokens: float | None
    documents: float | None

    def __init__(
        self,
        sources: Sources,
        request: object,
        group_names: tuple[str, ...] = (),
        metadata: Mapping[str, Scalar] = _EMPTY,
        headers: Mapping[str, str] = _EMPTY,
    ) -> None:
        self._sources = sources
        self._request = request
        self.group_names = group_names
        self.metadata = metadata
        self.headers = headers

    @classmethod
    def of(
        cls,
        *,
        group_names: tuple[str, ...] = (),
        metadata: Mapping[str, Scalar] = _EMPTY,
        headers: Mapping[str, str] = _EMPTY,
        **values: float | bool,
    ) -> Self:
        """Return facts that are already known, such as those of `lumen plan --facts`."""
        facts = cls(_EMPTY, None, group_names, metadata, headers)
        for name, value in values.items():
            setattr(facts, name, value)
        return facts

    def __getattr__(self, name: str) -> Any:
        """Compute a fact on its first use; from then on its slot is filled and this is not called again."""
        if name not in _ASKABLE:
            raise AttributeError(name)
        source = self._sources.get(name)
        value = None if source is None else source(self._request)
        setattr(self, name, value)
        return value
