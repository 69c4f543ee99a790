"""Estimates of token counts, for upstreams that report none and for rules that must know before the call.

A count never fails and never blocks a request. What an upstream reports always wins; an estimate is marked as one by
whoever books it. Reported usage is read by the dialects.
"""

from __future__ import annotations

from lumen_gateway.dialects import messages, responses
from lumen_gateway.dialects.chat import ChatRequest
from lumen_gateway.dialects.messages import MessagesRequest
from lumen_gateway.dialects.wire import ClientRequest
from lumen_gateway.records import Usage

_BYTES_PER_TOKEN = 4
_MESSAGE_TOKENS = 4  # role and separators of one message
_IMAGE_TOKENS = 765
_LOW_DETAIL_TOKENS = 85


def estimate_text(text: str) -> int:
    """Return the tokens of a text: a quarter of its UTF-8 bytes, rounded up."""
    return estimate_output(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


def estimate_output(size_bytes: int) -> int:
    """Return the tokens of a text of that many bytes."""
    return -(-size_bytes // _BYTES_PER_TOKEN)


def estimate(request: ClientRequest) -> int:
    """Return the input tokens of a client's request, whatever its dialect."""
    match request:
        case ChatRequest():
            return estimate_chat(request)
        case MessagesRequest():
            return messages.estimate(request)
    return responses.estimate(request)


def estimate_answer(request: ClientRequest, output_bytes: int) -> Usage:
    """Return what a whole answer used, marked as an estimate."""
    return Usage(estimate(request), estimate_output(output_bytes), origin="estimated")


def estimate_stream(request: ClientRequest, output_frames: int) -> Usage:
    """Return what a stream used, marked as an estimate: a token for each frame that held output."""
    return Usage(estimate(request), output_frames, origin="estimated")


def estimate_chat(request: ChatRequest) -> int:
    """Return the input tokens of a chat request.

    Shape: 4 a message, its text, 85 for an image of low detail and 765 for any other. Tools do not count, and an
           image's bytes are never decoded.
    """
    total = 0
    for message in request.messages():
        total += _MESSAGE_TOKENS + estimate_text(message.text())
        for detail in message.image_details():
            total += _LOW_DETAIL_TOKENS if detail == "low" else _IMAGE_TOKENS
    return total
