"""Facts: what a rule may ask about a request. An open, lazy set: each is computed when first asked for, and once.

A request that meets no rule pays for none of them. Which facts a rule may name is `routing/when.py`, how they compare
`routing/conditions.py`; each kind of request says here where its facts come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Self

from lumen_gateway.accounting.tokens import estimate
from lumen_gateway.dialects.wire import ClientRequest
from lumen_gateway.records import ANONYMOUS, Caller

Scalar = str | float | bool

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_ASKED_OF_REQUEST = ("stream", "has_images", "has_tools", "input_tokens", "documents")

_Sources = Mapping[str, Callable[[Any], object]]  # fact -> how to compute it from the request
_CHAT: _Sources = {
    "stream": lambda request: request.stream,
    "has_images": lambda request: request.has_images(),
    "has_tools": lambda request: request.has_tools(),
    "input_tokens": estimate,
}


class Facts:
    """The facts of one request. One that its kind of request does not have is None, and no rule on it holds.

    Positional arguments and slots keep making one below 0.3 us; every request whose plan has a choice makes one.
    """

    __slots__ = (
        "_sources",
        "_request",
        "_header_fields",
        "_caller",
        "metadata",
        "headers",
        "group_names",
        *_ASKED_OF_REQUEST,
    )  # fmt: skip - inputs first

    metadata: Mapping[str, Scalar]
    headers: Mapping[str, str]  # lower-case names
    group_names: tuple[str, ...]  # of the caller's budget group: its id and its name
    stream: bool | None
    has_images: bool | None
    has_tools: bool | None
    input_tokens: float | None
    documents: float | None

    def __init__(
        self,
        sources: _Sources,
        request: object,
        header_fields: Iterable[tuple[bytes, bytes]],
        metadata: Mapping[str, Scalar] | None,
        caller: Caller,
    ) -> None:
        self._sources = sources
        self._request = request
        self._header_fields = header_fields
        self._caller = caller
        self.metadata = _EMPTY if metadata is None else metadata

    @classmethod
    def of_chat(
        cls,
        request: ClientRequest,
        header_fields: Iterable[tuple[bytes, bytes]],
        metadata: Mapping[str, Scalar] | None,
        caller: Caller,
    ) -> Self:
        """Return the facts of a chat request, its preset applied. Nothing is computed yet.

        Shape: header names in lower case, as they came otherwise; `metadata` is None when absent or rejected.
        """
        return cls(_CHAT, request, header_fields, metadata, caller)

    @classmethod
    def of(
        cls,
        *,
        metadata: Mapping[str, Scalar] = _EMPTY,
        headers: Mapping[str, str] = _EMPTY,
        group_names: tuple[str, ...] = (),
        **asked: float | bool,
    ) -> Self:
        """Return facts that are already known, such as those of `lumen plan --facts`."""
        facts = cls(_EMPTY, None, (), metadata, ANONYMOUS)
        facts.headers = headers
        facts.group_names = group_names
        for name, value in asked.items():
            setattr(facts, name, value)
        return facts

    def __getattr__(self, name: str) -> Any:
        """Compute a fact on its first use; from then on its slot is filled and this is not called again."""
        value: object
        if name == "headers":
            value = _decoded(self._header_fields)
        elif name == "group_names":
            value = tuple(name for name in (self._caller.group_id, self._caller.group_name) if name is not None)
        elif name in _ASKED_OF_REQUEST:
            source = self._sources.get(name)
            value = None if source is None else source(self._request)
        else:
            raise AttributeError(name)
        setattr(self, name, value)
        return value


def _decoded(header_fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers as text; one sent several times is joined with commas (RFC 9110, 5.3)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in header_fields:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
