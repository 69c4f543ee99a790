"""Names of functions as Gemini takes them: up to 64 letters, digits, `_`, `.`, `:` and `-`, a letter or `_` first.

Source: Gemini API reference, "FunctionDeclaration", `name`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lumen_gateway.dialects.chat_names import Names, shortened
from lumen_gateway.dialects.neutral import Tool

_FITS = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")


def sent_name(name: str) -> str:
    """Return the name as it is sent: itself, or where that does not fit its beginning and a digest of the whole."""
    return name if _FITS.fullmatch(name) else shortened(f"_{name}")


def own_names(tools: Iterable[Tool]) -> Names:
    """Return the client's own names by those that were sent, of the tools whose names did not fit."""
    return {sent: tool.name for tool in tools if (sent := sent_name(tool.name)) != tool.name}
