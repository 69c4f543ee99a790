"""An upstream's own words about a refusal, fit for one line of the operator's log. Never for a client.

Vendors quote keys and prompts in their messages: what follows an echo of the request is cut, whatever looks like a
credential is blanked, the rest is one printable line of bounded length.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.providers.refusal_body import before_echo

MAX_CHARACTERS = 512
_HIDDEN = "***"

_KEY_PREFIXES = ("sk-", "sk_", "pk-", "rk-", "AIza", "ya29.", "AKIA", "ASIA", "gsk_", "xai-", "hf_", "pcsk_")
_REQUEST_IDS = ("req_", "req-")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.*+/=-]*")
_LONG_SEGMENT = re.compile(r"[A-Za-z0-9]{20,}")
_LABELLED = re.compile(r"(?i)\b((?:key|token|password|secret)\b['\"]?(?: provided| is)?\s*[:=]\s*['\"]?)([^\s'\",;]+)")


def log_text(body: bytes) -> str | None:
    """Return the vendor's message, cleaned, or None where the body has no message at a place known for one."""
    try:
        document = msgspec.json.decode(body)
    except UNREADABLE:
        return None
    message = _message(document[0] if isinstance(document, list) and document else document)
    return None if message is None else _clean(message)


def _message(document: Any) -> str | None:
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    places = (
        error.get("message") if isinstance(error, dict) else None,
        document.get("message"),
        document.get("error_description"),
        error,
        document.get("detail"),
    )
    return next((place for place in places if isinstance(place, str) and place), None)


def _clean(message: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in before_echo(message))
    line = _WORD.sub(_hide_word, _LABELLED.sub(rf"\g<1>{_HIDDEN}", " ".join(printable.split())))
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + "…"


def _hide_word(match: re.Match[str]) -> str:
    word = match[0]
    if word.startswith(_REQUEST_IDS):
        return word
    if word.startswith(_KEY_PREFIXES) or any(_mixes(segment) for segment in _LONG_SEGMENT.findall(word)):
        return _HIDDEN
    return word


def _mixes(segment: str) -> bool:
    """Say whether it holds letters and digits, as keys do and words do not."""
    return not segment.isalpha() and not segment.isdecimal()
