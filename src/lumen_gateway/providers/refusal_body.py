"""What an upstream's error body holds, whatever its envelope: codes, text, a status, a wait; `refusals` reads them.

25 vendors use a dozen envelopes, proxies in front of them answer in plain text or HTML, and a body may be cut at the
read limit. So nothing is expected of the shape: of JSON every string is collected by its key, of anything else what a
scan finds. What a vendor echoes of the request is left out: a prompt may well speak of context windows and policies.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

_CODE_KEYS = frozenset({"code", "type", "reason", "status", "error_type"})
_STATUS_KEYS = frozenset({"code", "status", "status_code", "http_status_code"})
# pydantic's echo of the request, Groq's of the model's answer, OpenRouter's of a flagged prompt
_ECHO_KEYS = frozenset({"input", "failed_generation", "flagged_input"})
_MAX_NODES = 10_000

_SCANNED_CODE = re.compile(r'"(?:code|type|reason|status|error_type)"\s*:\s*"([^"\\]{1,200})"')
_ECHO = re.compile(r"""['"](?:input|failed_generation|flagged_input)['"]|input_value|input=""")


class ErrorBody(NamedTuple):
    """Everything in lower case.

    `codes` are values of code-like keys; `text` is all text, theirs included; `status` an HTTP status told in the body;
    `retry_delay` and `reset_ms` are waits as vendors spell them there.
    """

    codes: frozenset[str] = frozenset()
    text: str = ""
    status: int | None = None
    retry_delay: str | None = None  # google.rpc.RetryInfo, such as "48s"
    reset_ms: int | None = None  # OpenRouter's X-RateLimit-Reset, ms since the epoch

    def has(self, codes: frozenset[str], phrases: tuple[str, ...]) -> bool:
        """Say whether a code is among the codes or a phrase within the text."""
        return not self.codes.isdisjoint(codes) or any(phrase in self.text for phrase in phrases)


def read(body: bytes) -> ErrorBody:
    """Read an error body of any shape, cut or whole."""
    text = body.decode("utf-8", "replace")
    try:
        return _collect(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        text = before_echo(text).lower()
        return ErrorBody(frozenset(_SCANNED_CODE.findall(text)), text)


def before_echo(text: str) -> str:
    """Return the text up to where a validation error starts to quote the request."""
    echo = _ECHO.search(text)
    return text[: echo.start()] if echo else text


def _collect(document: Any) -> ErrorBody:
    if isinstance(document, dict) and "choices" in document:
        document = document.get("error")  # a stream's chunk with an error in it: the rest is the answer's own text
    codes: set[str] = set()
    texts: list[str] = []
    status = retry_delay = reset_ms = None
    nodes = [("", document)]
    for key, node in nodes:  # breadth first: outer codes come before those of details
        if len(nodes) > _MAX_NODES:
            break
        if isinstance(node, dict):
            nodes += [(name.lower(), value) for name, value in node.items() if name not in _ECHO_KEYS]
            continue
        if isinstance(node, list):
            nodes += [(key, value) for value in node]
            continue
        if status is None and key in _STATUS_KEYS:
            status = _http_status(node)
        if not isinstance(node, str):
            continue
        if key in _CODE_KEYS:
            codes.add(node.lower())
        elif key == "retrydelay":
            retry_delay = node
        elif key == "x-ratelimit-reset" and node.isdecimal() and len(node) == 13:
            reset_ms = int(node)
        elif key == "raw" and (inner := _embedded(node)) is not None:
            nodes.append(("", inner))
            continue
        texts.append(before_echo(node).lower())
    return ErrorBody(frozenset(codes), "\n".join(texts), status, retry_delay, reset_ms)


def _http_status(value: object) -> int | None:
    """Return an error status, also one spelled as a string (Azure, Z.ai)."""
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and 400 <= value <= 599 else None


def _embedded(text: str) -> Any:
    """Decode the provider's own body that OpenRouter hands on as a string."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
