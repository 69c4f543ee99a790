"""The key that guards the gateway itself, `LUMEN_MASTER_KEY`: read from the environment, never from a document.

It is 64 hexadecimal characters or nothing. A key that is none guards nothing: the usual accident, a placeholder that no
tool has filled in, is known to everybody who reads the same manual.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lumen_gateway.config.rules import MASTER_KEY
from lumen_gateway.config.schema import Fault
from lumen_gateway.redact import Secret

_KEY = re.compile(r"[0-9A-Fa-f]{64}").fullmatch
_PLACEHOLDERS = ("${", "$(", "{{", "<", "%")
_FIX = "set it to 64 hexadecimal characters: openssl rand -hex 32"


def read_master_key(environ: Mapping[str, str]) -> Secret | None:
    """Return the key, or None if there is none that can be used."""
    value = environ.get(MASTER_KEY, "").strip()
    return Secret(value) if _KEY(value) else None


def check_master_key(values: Mapping[str, Any], environ: Mapping[str, str]) -> list[Fault]:
    """Return what is wrong with the key: fatal for a document that turns `auth` on, else worth a warning.

    `values` is the document as it was read, in whatever shape.
    """
    value = environ.get(MASTER_KEY, "").strip()
    if _KEY(value):
        return []
    auth = values.get("auth")
    if isinstance(auth, dict) and auth.get("enabled") is True:
        return [Fault(("auth", "enabled"), f"needs {MASTER_KEY} in the environment, {_wrong(value)}", _FIX)]
    if not value:
        return []
    return [Fault((MASTER_KEY,), _wrong(value).removeprefix("which "), f"it opens nothing; {_FIX}", warning=True)]


def _wrong(value: str) -> str:
    if not value:
        return "which is not set"
    if value.startswith("$") or any(mark in value for mark in _PLACEHOLDERS):
        return "which holds a placeholder that nothing has filled in"
    return "which is not 64 hexadecimal characters"
