"""The response object and its items."""

from __future__ import annotations

import pytest

from lumen_gateway.dialects.neutral import Start, Thinking, ToolCall
from lumen_gateway.dialects.responses_object import (
    response_id,
    write_call,
    write_message,
    write_reasoning,
    write_refusal,
    write_response,
    write_text,
)


def test_ids_look_like_those_of_responses() -> None:
    assert response_id("chatcmpl-1") == "resp_chatcmpl-1"
    assert response_id("resp_1") == "resp_1"


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        (None, "in_progress", None),
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("refusal", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_status_follows_the_finish(finish: str, status: str, reason: object) -> None:
    response = write_response(Start("resp_1", "m"), 7, [], finish, None)  # type: ignore[arg-type] # words of the table
    assert (response["status"], response["incomplete_details"]) == (status, reason)
    assert (response["id"], response["model"], response["created_at"]) == ("resp_1", "m", 7)


def test_items_have_their_parts() -> None:
    said = write_message("msg_1", "completed", [write_text("x"), write_refusal("y")])
    assert (said["role"], said["status"]) == ("assistant", "completed")
    called = write_call("fc_1", "completed", ToolCall(id="call_1", name="f"))
    assert (called["call_id"], called["id"], called["arguments"]) == ("call_1", "fc_1", "{}")


def test_reasoning_carries_what_proves_it() -> None:
    assert write_reasoning("rs_1", Thinking(text="hm")) == {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
    }
    assert write_reasoning("rs_1", Thinking(redacted="x"))["summary"] == []
    assert "x" in str(write_reasoning("rs_1", Thinking(redacted="x"))["encrypted_content"])
