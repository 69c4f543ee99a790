"""Names of tools as chat upstreams take them: up to 64 letters, digits, `_` and `-`; other dialects allow more.

A name that does not fit is sent as one that does, the same in every turn, and given back as the client wrote it.

Source: OpenAI API reference, "Create chat completion", `tools[].function.name`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from lumen_gateway.dialects.neutral import Tool

MAX_CHARS = 64
_DIGEST_CHARS = 8  # 32 bits: of a thousand such tools in one request, two would collide once in ten thousand requests
_FITS = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_CHARS}}}")
_MISFITS = re.compile(r"[^A-Za-z0-9_-]")

Names = Mapping[str, str]
NO_NAMES: Names = MappingProxyType({})


def sent_name(name: str) -> str:
    """Return the name as it is sent: itself, or where that does not fit its beginning and a digest of the whole."""
    return name if _FITS.fullmatch(name) else shortened(name)


def shortened(name: str) -> str:
    """Return the beginning of a name, in letters that fit, and a digest of the whole."""
    digest = hashlib.blake2s(name.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{_MISFITS.sub('_', name)[: MAX_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def own_names(tools: Iterable[Tool]) -> Names:
    """Return the client's own names by those that were sent, of the tools whose names did not fit."""
    return {sent: tool.name for tool in tools if (sent := sent_name(tool.name)) != tool.name}
