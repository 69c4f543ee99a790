"""Public fakes: a scripted upstream and a clock moved by hand. Used by the tests, `lumen upstream` and `lumen demo`."""

from lumen_gateway.simulator.clock import ManualClock
from lumen_gateway.simulator.reply import (
    Answering,
    Call,
    Replies,
    Reply,
    auto,
    completion,
    error,
    json_reply,
    stream,
    words,
)
from lumen_gateway.simulator.upstream import Upstream

__all__ = [
    "Upstream",
    "Reply",
    "Call",
    "Answering",
    "Replies",
    "completion",
    "stream",
    "error",
    "auto",
    "json_reply",
    "words",
    "ManualClock",
]
