"""Writing a stream, and a whole answer: every item in its place, every event numbered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tests.dialects.responses_wire import events, frames, is_response_stream, response_of
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.neutral import (
    Answer,
    CallDelta,
    Delta,
    Finished,
    NativeDelta,
    Raw,
    Refusal,
    RefusalDelta,
    Start,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    Used,
)
from lumen_gateway.dialects.responses_deltas import ResponsesDeltas
from lumen_gateway.dialects.responses_to_neutral import read_answer
from lumen_gateway.dialects.responses_writer import ResponsesWriter, write_answer
from lumen_gateway.records import Usage

START = Start("x", "m")


def write(*steps: Delta) -> bytes:
    writer = ResponsesWriter(7)
    return b"".join([writer.write(step) for step in steps]) + writer.end()


def response(*steps: Delta) -> dict[str, Any]:
    return response_of(write(START, *steps))


def said(item: dict[str, Any]) -> list[str]:
    return [part.get("text", part.get("refusal")) for part in item["content"]]


def test_text_is_one_message() -> None:
    whole = response(TextDelta("he"), TextDelta(""), TextDelta("y"), Finished("stop"), Used(Usage(1, 2)))
    (item,) = whole["output"]
    assert (item["type"], said(item), item["status"]) == ("message", ["hey"], "completed")
    assert (whole["id"], whole["model"], whole["created_at"], whole["status"]) == ("resp_x", "m", 7, "completed")
    assert whole["usage"]["total_tokens"] == 3


def test_events_of_a_text_come_in_their_order() -> None:
    assert [event["type"].removeprefix("response.") for event in events(write(START, TextDelta("x")))] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_refusal_is_a_part_of_its_own() -> None:
    (item,) = response(TextDelta("x"), RefusalDelta("no"), RefusalDelta("!"))["output"]
    assert [part["type"] for part in item["content"]] == ["output_text", "refusal"]
    assert said(item) == ["x", "no!"]


def test_calls_may_be_filled_by_turns() -> None:
    first, second = response(
        CallDelta(0, "a", "f"), CallDelta(1, "b", "g"), CallDelta(0, arguments='{"x"'), CallDelta(0, arguments=":1}")
    )["output"]
    assert (first["call_id"], first["name"], first["arguments"]) == ("a", "f", '{"x":1}')
    assert (second["call_id"], second["name"], second["arguments"]) == ("b", "g", "{}")


def test_text_behind_a_call_is_another_message() -> None:
    items = response(TextDelta("x"), CallDelta(0, "a", "f"), TextDelta("y"))["output"]
    assert [item["type"] for item in items] == ["message", "function_call", "message"]
    assert len({item["id"] for item in items}) == 3


def test_thinking_is_shown_as_a_summary_and_closed_by_what_proves_it() -> None:
    shown = (ThinkingDelta("h"), ThinkingDelta("m"), ThinkingDelta(signature="s"))
    items = response(*shown, ThinkingDelta("so"), ThinkingDelta(redacted="r"))["output"]
    assert [[part["text"] for part in item["summary"]] for item in items] == [["hm"], ["so"], []]
    assert [item.get("encrypted_content") for item in items] == ["signature:s", None, "redacted:r"]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_answer_cut_short_is_incomplete(finish: Any, reason: str) -> None:
    whole = response(CallDelta(0, "a", "f", '{"x'), Finished(finish))
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert whole["output"][0]["status"] == "incomplete"


def test_stream_without_anything_is_a_whole_one() -> None:
    assert response_of(write())["output"] == []
    assert write(NativeDelta("messages", Raw(b"{}")), START, START).count(b"event: response.created") == 1


def test_next_number_is_known_all_the_time() -> None:
    writer = ResponsesWriter(7)
    assert writer.sequence == 0
    writer.write(START)
    assert writer.sequence == 2


PARTS = [Thinking(text="hm", signature="s"), Text(text="x"), Refusal(text="no"), ToolCall(id="a", name="f")]


def test_whole_answer_says_what_it_was_told() -> None:
    answer = Answer(id="resp_1", model="m", parts=PARTS, finish="tool_calls", usage=Usage(1, 2, 0, 0, 0, "reported"))
    assert read_answer(write_answer(answer, 7)) == answer


def test_openais_own_types_hold_every_event_and_answer() -> None:
    usage = Usage(1, 2, origin="reported")
    Response.model_validate_json(write_answer(Answer(id="r", model="m", parts=PARTS, finish="length", usage=usage), 7))
    steps = (
        ThinkingDelta("h"),
        ThinkingDelta(signature="s"),
        TextDelta("x"),
        RefusalDelta("n"),
        CallDelta(0, "c", "f"),
    )
    event = TypeAdapter[Any](ResponseStreamEvent)
    for told in events(write(START, *steps, Finished("stop"), Used(usage))):
        assert event.validate_python(told).type == told["type"]


def test_answer_without_usage_has_none() -> None:
    assert json.loads(write_answer(Answer(id="r", model="m", parts=[], finish="length"), 7))["usage"] is None


pieces = st.one_of(
    st.text(max_size=3).map(TextDelta),
    st.text(max_size=3).map(RefusalDelta),
    st.builds(ThinkingDelta, st.text(max_size=3), st.sampled_from(["", "s"]), st.sampled_from(["", "r"])),
    st.integers(0, 2).map(lambda index: CallDelta(index, f"c{index}", "f")),
)


@given(st.lists(pieces, max_size=12))
def test_any_stream_obeys_the_rules_and_loses_no_text(steps: list[Delta]) -> None:
    output = response(*steps, Finished("stop"))["output"]
    told = "".join(text for item in output if item["type"] == "message" for text in said(item))
    assert told == "".join(step.text for step in steps if isinstance(step, TextDelta | RefusalDelta))


@pytest.mark.parametrize("recording", recorded(is_response_stream))
def test_recorded_streams_come_out_as_they_went_in(recording: Recording) -> None:
    reader, writer = ResponsesDeltas(), ResponsesWriter(7)
    out = b"".join(writer.write(step) for frame in frames(recording.body) for step in reader.read(frame))
    before, after = ResponsesDeltas(), ResponsesDeltas()
    told = [step for frame in frames(recording.body) for step in before.read(frame)]
    again = [step for frame in frames(out + writer.end()) for step in after.read(frame)]
    for kind in (TextDelta, RefusalDelta, ThinkingDelta):
        assert _text(again, kind) == _text(told, kind)
    assert [step for step in again if isinstance(step, Finished)] == [
        step for step in told if isinstance(step, Finished)
    ]
    assert before.state.usage is not None
    assert after.state.usage is not None
    assert after.state.usage.output == before.state.usage.output


def _text(steps: list[Delta], kind: type[Any]) -> str:
    return "".join(step.text for step in steps if isinstance(step, kind))
