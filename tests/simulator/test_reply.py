"""The builders make what OpenAI's clients expect to read."""

from __future__ import annotations

from typing import Any

import msgspec

from lumen_gateway.records import Usage
from lumen_gateway.simulator import Call, Reply, auto, completion, error, stream, words


def call(**body: Any) -> Call:
    return Call(method="POST", path="/v1/chat/completions", headers={}, body=msgspec.json.encode(body), at=0.0)


def events(reply: Reply) -> list[Any]:
    """Decode a stream's frames; the terminator stays text."""
    texts = [frame.decode().removeprefix("data: ").removesuffix("\n\n") for frame in reply.frames or ()]
    return [text if text == "[DONE]" else msgspec.json.decode(text) for text in texts]


def test_completion_holds_text_model_and_usage() -> None:
    answer = msgspec.json.decode(completion("hi", model="m", usage=Usage(input=2, output=1, cached=1)).body)
    assert answer["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "hi"},
        "finish_reason": "stop",
    }
    assert answer["model"] == "m"
    assert answer["usage"]["total_tokens"] == 3
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}


def test_completion_without_usage_reports_none() -> None:
    assert "usage" not in msgspec.json.decode(completion("hi", usage=None).body)


def test_stream_ends_with_finish_reason_usage_and_terminator() -> None:
    *pieces, finish, usage, done = events(stream(["a", "b"], usage=Usage(input=1, output=2, reasoning=1)))
    assert [piece["choices"][0]["delta"].get("content") for piece in pieces] == ["", "a", "b"]
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}
    assert done == "[DONE]"


def test_stream_left_open_ends_after_the_last_piece() -> None:
    last = events(stream(["a"], done=False))[-1]
    assert last["choices"][0] == {"index": 0, "delta": {"content": "a"}, "finish_reason": None}


def test_error_carries_status_code_and_retry_after() -> None:
    reply = error(429, "rate_limit_exceeded", "slow down", retry_after=2)
    assert reply.status == 429
    assert ("retry-after", "2") in reply.headers
    assert msgspec.json.decode(reply.body)["error"]["code"] == "rate_limit_exceeded"


def test_auto_answers_whole_or_streamed_as_asked() -> None:
    answer = auto("Hello there.")
    whole = msgspec.json.decode(answer(call(model="m")).body)
    assert whole["choices"][0]["message"]["content"] == "Hello there."
    assert whole["model"] == "m"
    pieces = events(answer(call(model="m", stream=True)))
    assert "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces[:-1]) == "Hello there."
    assert not any("usage" in piece for piece in pieces[:-1])


def test_auto_reports_usage_in_a_stream_only_when_asked() -> None:
    pieces = events(auto("Hello.")(call(stream=True, stream_options={"include_usage": True})))
    assert pieces[-2]["usage"]["prompt_tokens"] == 9


def test_words_joined_are_the_text() -> None:
    for text in ("", "one", "one two  three ", " lead"):
        assert "".join(words(text)) == text


def test_call_field_of_no_json_object_is_none() -> None:
    plain = Call(method="POST", path="/", headers={}, body=b"{", at=0.0)
    assert plain.field("model") is None
    assert Call(method="POST", path="/", headers={}, body=b"[1]", at=0.0).field("model") is None
