"""Repairs are exactly three, and what does not deviate keeps its very bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from tests.recordings import Recording, is_chat_answer, recorded

from lumen_gateway.dialects.chat_repair import FrameRepair, repair_answer


def chunk(*calls: Mapping[str, object], index: int = 0) -> bytes:
    return json.dumps({"choices": [{"index": index, "delta": {"tool_calls": calls}, "finish_reason": None}]}).encode()


def indexes_of(data: bytes) -> list[int]:
    return [call["index"] for call in json.loads(data)["choices"][0]["delta"]["tool_calls"]]


def numbered(*frames: bytes) -> list[list[int]]:
    repair = FrameRepair()
    return [indexes_of(repair.repair(frame) or frame) for frame in frames]


def test_null_choices_become_a_list() -> None:
    assert repair_answer(b'{"id": "x", "choices": null, "n": 1.0}') == b'{"id":"x","choices":[],"n":1.0}'


def test_empty_finish_reason_becomes_null_and_the_rest_keeps_its_spelling() -> None:
    body = b'{"choices":[{"message":{ "content":"\\u00e9"},"finish_reason":""},{"finish_reason":"stop"}],"t":1.50}'
    assert repair_answer(body) == body.replace(b'"finish_reason":""', b'"finish_reason":null')


@pytest.mark.parametrize(
    "body",
    [
        b'{ "choices": [ {"finish_reason": "stop", "message": {"tool_calls": [{"id": "1"}]}} ] }',
        b'{"error": {"message": "x"}}',
        b'{"choices": [1]}',
        b'{"choices": [{"delta": 1}]}',
        b"[]",
        b"not json",
        b'{"choices": "\xff"}',
    ],
)
def test_body_without_those_deviations_is_the_same_object(body: bytes) -> None:
    assert repair_answer(body) is body


def test_frame_that_does_not_deviate_is_left_alone() -> None:
    repair = FrameRepair()
    for data in (chunk({"index": 0, "id": "a"}), b'{"choices":[]}', b'{"choices":[{"delta":null}]}', b"[DONE]", b"{}"):
        assert repair.repair(data) is None


def test_calls_without_index_are_numbered_in_order_of_their_ids() -> None:
    assert numbered(chunk({"id": "a"}, {"id": "b"}), chunk({"id": "c"}), chunk({"id": "a"})) == [[0, 1], [2], [0]]


def test_pieces_without_id_belong_to_the_last_call() -> None:
    piece = {"function": {"arguments": "{"}}
    assert numbered(
        chunk({"id": "a"}), chunk(piece), chunk({"id": "b"}), chunk(piece), chunk({"id": None, **piece})
    ) == [
        [0],
        [0],
        [1],
        [1],
        [1],
    ]


def test_a_name_starts_a_call_where_there_is_no_id() -> None:
    named = {"function": {"name": "f", "arguments": ""}}
    piece = {"function": {"name": "", "arguments": "{}"}}
    assert numbered(chunk(named, named), chunk(piece)) == [[0, 1], [1]]


def test_choices_are_numbered_apart() -> None:
    repair = FrameRepair()
    assert indexes_of(repair.repair(chunk({"id": "a"}, index=0)) or b"") == [0]
    assert indexes_of(repair.repair(chunk({"id": "b"}, index=1)) or b"") == [0]


def test_numbers_given_by_the_upstream_stand() -> None:
    repair = FrameRepair()
    assert repair.repair(chunk({"id": "a", "index": 0})) is None
    assert indexes_of(repair.repair(chunk({"id": "b"})) or b"") == [1]


@pytest.mark.parametrize("recording", recorded(lambda entry: is_chat_answer(entry) and not entry["stream"]))
def test_recorded_answer_needs_no_repair(recording: Recording) -> None:
    assert repair_answer(recording.body) is recording.body
