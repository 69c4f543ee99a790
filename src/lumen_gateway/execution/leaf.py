"""A leaf made ready to call: everything about a foundation model that is known before a request comes.

Built once per document by `app.py`; the executor and the exchanges only read it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lumen_gateway.accounting.prices import Prices
from lumen_gateway.dialects.chat import ChatRules
from lumen_gateway.records import Origin
from lumen_gateway.redact import Secret

Key = tuple[str, str | None, str]
"""(provider, key label, model): what breakers and cooldowns are kept by."""


class Credential(msgspec.Struct, frozen=True):
    """One key of a leaf's provider.

    `headers` are the complete header lines that carry it, empty for keyless upstreams.
    """

    key: Key
    label: str | None
    weight: int
    headers: Secret


class Timeouts(msgspec.Struct, frozen=True):
    """Waits of one provider, in seconds."""

    first_token_s: float
    response_s: float
    idle_s: float
    total_s: float


class Leaf(msgspec.Struct, frozen=True):
    """One foundation model, ready to call."""

    id: str
    provider: str
    origin: Origin
    heads: Mapping[str, bytes]  # what it speaks, first choice first -> request line and headers, up to the credential's
    model: msgspec.Raw  # upstream id as JSON
    credentials: tuple[Credential, ...]
    rules: ChatRules
    timeouts: Timeouts
    prices: Prices | None
    repair: bool
    streams: bool
    images: bool
    forward_headers: frozenset[bytes]  # client headers this provider may see
    fields: Mapping[str, tuple[tuple[bytes, bytes], ...]] = {}  # per api: sent unless the client sends its own
    count_head: bytes | None = None  # as `heads`, of a call that counts tokens; None: it has no such call
    stream_heads: Mapping[str, bytes] = {}  # those that differ for streams
    kind: str = "openai"  # of its provider; nothing here depends on it, traces name it

    def api(self, dialect: str) -> str:
        """Return what to speak to it for a client of a dialect.

        The client's own, if it can, so that bytes pass through.
        """
        return dialect if dialect in self.heads else next(iter(self.heads))

    def head(self, api: str, *, stream: bool) -> bytes:
        """Return request line and headers of a call, up to the credential's."""
        head = self.stream_heads.get(api) if stream else None
        return head or self.heads[api]
