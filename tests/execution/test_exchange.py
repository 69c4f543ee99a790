"""One try: the request that is sent, what an answer is taken for, what is warned about and booked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.execution.staging import (
    PRICES,
    TIMEOUTS,
    ScriptedAnswer,
    Silence,
    Stage,
    chain,
    failure,
    leaf,
    reset,
)

from lumen_gateway.config.schema import Overrides
from lumen_gateway.dialects import spans
from lumen_gateway.errors import TRIGGERS, Kind, Trigger
from lumen_gateway.execution.exchange import ERROR_BODY_S, MAX_ANSWER_BYTES, MAX_ERROR_BYTES
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.records import Usage
from lumen_gateway.routing.overrides import fold
from lumen_gateway.routing.plan import Attempt, Escape

USAGE = {"prompt_tokens": 7, "completion_tokens": 5}
REPORTED = Usage(7, 5, origin="reported")


def answer(content: str | None = "hello", finish: str = "stop", usage: Any = USAGE, **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return msgspec.json.encode({"choices": [choice], "usage": usage, **more})


def whole(body: bytes, status: int = 200, **headers: bytes) -> ScriptedAnswer:
    return ScriptedAnswer(body, status=status, headers=[(name.encode(), value) for name, value in headers.items()])


def refusal(status: int, code: str = "", message: str = "no") -> ScriptedAnswer:
    return whole(msgspec.json.encode({"error": {"code": code, "message": message}}), status)


# What is sent.


async def test_each_attempt_is_written_afresh_from_the_clients_body() -> None:
    body = b'{"model":"v","messages":[{"role":"user","content":"x"}],"odd":1.50}'
    stage = Stage({"a": [refusal(503)], "b": [whole(answer())]}, body)
    await stage.run(stage.buffered(chain("a", "b")))
    first, second = (payload for _, payload in stage.transport.sent)
    assert first.endswith(b'{"model":"a","messages":[{"role":"user","content":"x"}],"odd":1.50}')
    assert second.endswith(b'{"model":"b","messages":[{"role":"user","content":"x"}],"odd":1.50}')


async def test_request_carries_head_key_forwarded_headers_and_length() -> None:
    stage = Stage({"a": [whole(answer())]})
    stage.headers = [(b"openai-beta", b"x"), (b"cookie", b"canary"), (b"content-length", b"1")]
    await stage.run(stage.buffered(chain("a"), [leaf("a", "one", forward_headers=frozenset({b"openai-beta"}))]))
    head, _, body = stage.transport.sent[0][1].partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /chat HTTP/1.1",
        b"authorization: Bearer key-one",
        b"openai-beta: x",
        b"content-length: %d" % len(body),
    ]


async def test_overrides_of_an_attempt_reach_only_that_attempt() -> None:
    edits = fold((Overrides(set={"temperature": 0.5}),))
    attempts = (
        Attempt("a", "of-a", edits=edits, escapes=(Escape(Trigger.PROVIDER_ERROR, 0),)),
        Attempt("b", "of-b", starts=1),
    )
    stage = Stage({"a": [refusal(503)], "b": [whole(answer())]})
    await stage.run(stage.buffered(attempts))
    bodies = [spans.split(payload.partition(b"\r\n\r\n")[2]) for _, payload in stage.transport.sent]
    assert [bytes(body.get("temperature", msgspec.Raw(b""))) for body in bodies] == [b"0.5", b""]


# What an answer is taken for.


async def test_answer_is_returned_byte_for_byte() -> None:
    body = b' {"choices" : [{"message":{"content":"hi"}}], "odd":1e0}\n'
    stage = Stage({"a": [ScriptedAnswer(*(body[i : i + 1] for i in range(len(body))))]})
    assert await stage.run(stage.buffered(chain("a"))) == body


REFUSALS = [
    (500, "", Kind.UPSTREAM_ERROR),
    (529, "", Kind.UPSTREAM_ERROR),
    (429, "", Kind.RATE_LIMITED),
    (429, "insufficient_quota", Kind.QUOTA_LIMITED),
    (402, "", Kind.QUOTA_EXHAUSTED),
    (400, "context_length_exceeded", Kind.CONTEXT_LENGTH),
    (400, "content_filter", Kind.CONTENT_FILTER),
    (401, "", Kind.AUTH_FAILED),
    (403, "", Kind.AUTH_FAILED),
    (404, "", Kind.UPSTREAM_NOT_FOUND),
    (408, "", Kind.READ_TIMEOUT),
    (400, "", Kind.UPSTREAM_REFUSED),
    (302, "", Kind.UPSTREAM_REFUSED),
]


@pytest.mark.parametrize(("status", "code", "kind"), REFUSALS)
async def test_refusal_is_classified_by_status_and_body(status: int, code: str, kind: Kind) -> None:
    stage = Stage({"a": [refusal(status, code)]})
    work = stage.buffered(chain("a"))
    found = await stage.fail(work)
    assert (found.kind, found.upstream_status) == (kind, status)
    assert f"(status {status})" in found.message
    assert found.message.startswith('provider "of-a": ')
    assert work.records[0].upstream_status == status
    assert stage.transport.answers[0].over == "left"


@pytest.mark.parametrize("kind", [Kind.CONTEXT_LENGTH, Kind.CONTENT_FILTER])
async def test_error_told_inside_a_200_never_answers_200(kind: Kind) -> None:
    code = {Kind.CONTEXT_LENGTH: "context_length_exceeded", Kind.CONTENT_FILTER: "content_filter"}[kind]
    stage = Stage({"a": [refusal(200, code)]})
    found = await stage.fail(stage.buffered(chain("a")))
    assert (found.kind, found.status) == (kind, 400)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"text"', b'{"choices":', b'{"object":"list"}', b"\xff"])
async def test_what_is_no_chat_completion_is_malformed(body: bytes) -> None:
    stage = Stage({"a": [whole(body)]})
    found = await stage.fail(stage.buffered(chain("a")))
    assert (found.kind.row.code, found.provider) == ("LM-3002", "of-a")


async def test_answer_without_measure_is_malformed() -> None:
    stage = Stage({"a": [ScriptedAnswer(*[b" " * (MAX_ANSWER_BYTES // 4)] * 5)]})
    assert (await stage.fail(stage.buffered(chain("a")))).kind is Kind.MALFORMED


async def test_body_that_is_cut_fails_over() -> None:
    body = answer()
    for cut in range(len(body) + 1):
        stage = Stage({"a": [ScriptedAnswer(body[:cut], reset())], "b": [whole(body)]})
        assert await stage.run(stage.buffered(chain("a", "b"))) == body
        assert stage.transport.asked == ["a", "b"]
        assert stage.transport.answers[0].over == "closed"


async def test_body_that_ends_short_without_a_sign_is_never_a_200() -> None:
    body = answer()
    for cut in range(len(body)):
        stage = Stage({"a": [ScriptedAnswer(body[:cut])]})
        assert (await stage.fail(stage.buffered(chain("a")))).kind is Kind.MALFORMED


async def test_body_that_stalls_fails_over_after_its_own_providers_timeout() -> None:
    quick = msgspec.structs.replace(TIMEOUTS, response_s=5.0)
    stage = Stage({"a": [ScriptedAnswer(b'{"choices"', Silence(1e6))], "b": [whole(answer())]})
    work = stage.buffered(chain("a", "b"), [leaf("a", timeouts=quick)], retry=RetryPolicy())
    await stage.run(work)
    assert stage.clock.slept == [5.0]
    assert work.records[0].outcome == "timeout"


async def test_no_head_in_time_is_the_whole_answers_timeout_when_nothing_is_streamed() -> None:
    stage = Stage({"a": [Kind.FIRST_TOKEN_TIMEOUT]})
    found = await stage.fail(stage.buffered(chain("a")))
    assert found.kind is Kind.READ_TIMEOUT
    assert found.kind.row.code == "LM-3005"


async def test_total_deadline_ends_a_body_that_its_own_timeout_would_let_go_on() -> None:
    stage = Stage({"a": [ScriptedAnswer(Silence(1e6))], "b": [whole(answer())]})
    found = await stage.fail(stage.buffered(chain("a", "b"), total_at_s=stage.clock.monotonic() + 3.0))
    assert (found.kind, found.provider) == (Kind.TOTAL_TIMEOUT, "of-a")
    assert stage.clock.slept == [3.0]
    assert stage.transport.asked == ["a"]


# Answers without output.

EMPTY, FILTERED = answer(""), answer(None, "content_filter")
NESTED = (  # outer [inner [a, b], c]: only the inner list names the trigger
    Attempt("a", "p", escapes=(Escape(Trigger.EMPTY_ANSWER | Trigger.CONTENT_FILTER, 1), Escape(Trigger.TIMEOUT, 0))),
    Attempt("b", "p", escapes=(Escape(Trigger.TIMEOUT, 0),), starts=0b10),
    Attempt("c", "p", starts=0b01),
)


@pytest.mark.parametrize(
    ("body", "trigger", "code"),
    [(EMPTY, Trigger.EMPTY_ANSWER, "LM-3002"), (FILTERED, Trigger.CONTENT_FILTER, "LM-2013")],
)
async def test_answer_without_output_fails_over_where_listed_and_is_the_failure_of_the_last(
    body: bytes, trigger: Trigger, code: str
) -> None:
    stage = Stage({"a": [whole(body)], "b": [whole(answer())]})
    assert await stage.run(stage.buffered(chain("a", "b", triggers=trigger))) == answer()
    stage = Stage({"a": [whole(body)], "b": [whole(body)]})
    found = await stage.fail(stage.buffered(chain("a", "b", triggers=trigger)))
    assert found.kind.row.code == code
    assert stage.transport.asked == ["a", "b"]


@pytest.mark.parametrize("body", [EMPTY, FILTERED])
async def test_answer_without_output_is_a_success_where_nothing_lists_it(body: bytes) -> None:
    stage = Stage({"a": [whole(body)], "b": [whole(answer())]})
    assert await stage.run(stage.buffered(chain("a", "b"))) == body


@pytest.mark.parametrize("body", [EMPTY, FILTERED])
async def test_only_the_lists_around_an_attempt_count(body: bytes) -> None:
    stage = Stage({"a": [whole(body)], "b": [Kind.READ_TIMEOUT], "c": [whole(body)]})
    assert await stage.run(stage.buffered(NESTED)) == body
    assert stage.transport.asked == ["a", "b", "c"]
    stage = Stage({"a": [whole(body)], "b": [whole(body)]})
    await stage.fail(stage.buffered(NESTED))
    assert stage.transport.asked == ["a", "b"]


async def test_answer_cut_off_by_its_limit_with_nothing_in_it_is_not_empty() -> None:
    stage = Stage({"a": [whole(answer("", "length"))]})
    listed = chain("a", "b", triggers=TRIGGERS["any_error"])
    assert await stage.run(stage.buffered(listed)) == answer("", "length")


# Bodies of refusals.


async def test_error_body_is_read_no_further_than_its_limit_and_classified_from_that() -> None:
    long = refusal(400, "context_length_exceeded")
    long.pieces += [b" " * 4096] * 100
    stage = Stage({"a": [long]})
    assert (await stage.fail(stage.buffered(chain("a")))).kind is Kind.CONTEXT_LENGTH
    assert len(long.pieces) > 100 - MAX_ERROR_BYTES // 4096 - 1


async def test_error_body_that_stalls_costs_half_a_second_and_is_classified_from_what_came() -> None:
    stalled = ScriptedAnswer(b'{"error":{"code":"context_length_exceeded"', Silence(1e6), status=400)
    stage = Stage({"a": [stalled]})
    assert (await stage.fail(stage.buffered(chain("a")))).kind is Kind.CONTEXT_LENGTH
    assert stage.clock.slept == [ERROR_BODY_S]


async def test_error_body_is_not_waited_for_beyond_the_total_deadline() -> None:
    stage = Stage({"a": [ScriptedAnswer(Silence(1e6), status=400)]})
    await stage.fail(stage.buffered(chain("a"), total_at_s=stage.clock.monotonic() + 0.25))
    assert stage.clock.slept == [0.25]


@pytest.mark.parametrize("status", [500, 503, 302])
async def test_body_of_what_is_no_4xx_is_not_read(status: int) -> None:
    stage = Stage({"a": [ScriptedAnswer(Silence(1e6), status=status)]})
    await stage.fail(stage.buffered(chain("a")))
    assert stage.transport.answers[0].reads == 0
    assert stage.clock.slept == []


async def test_each_4xx_is_warned_about_once_and_the_client_never_sees_its_text() -> None:
    stage = Stage({"a": [refusal(400, message="upstream's own words")]})
    found = await stage.fail(stage.buffered(chain("a")))
    assert stage.warned == [("of-a", 400, "upstream's own words")]
    assert "words" not in found.message


@pytest.mark.parametrize(("status", "code", "warned"), [(429, "", 0), (429, "insufficient_quota", 1), (500, "", 0)])
async def test_burst_is_no_news_and_an_empty_account_is(status: int, code: str, warned: int) -> None:
    stage = Stage({"a": [refusal(status, code)]})
    await stage.fail(stage.buffered(chain("a")))
    assert len(stage.warned) == warned


async def test_wait_asked_for_comes_from_the_header() -> None:
    stage = Stage({"a": [ScriptedAnswer(status=429, headers=[(b"retry-after", b"17")])]})
    assert (await stage.fail(stage.buffered(chain("a")))).retry_after_s == 17.0


# The books.


async def test_reported_usage_is_booked_with_its_cost() -> None:
    stage = Stage({"a": [whole(answer())]})
    work = stage.buffered(chain("a"), [leaf("a", prices=PRICES)])
    await stage.run(work)
    assert work.records[0].usage == REPORTED
    assert work.records[0].cost_pico == 7 * PRICES.input + 5 * PRICES.output


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}])
async def test_usage_that_is_not_reported_is_estimated_and_marked(usage: Any) -> None:
    stage = Stage({"a": [whole(answer("four words of text", usage=usage))]})
    work = stage.buffered(chain("a"))
    await stage.run(work)
    assert work.records[0].usage == Usage(4 + 3, 5, origin="estimated")
    assert work.records[0].cost_pico is None


async def test_usage_is_not_estimated_where_it_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lumen_gateway.execution.exchange.estimate_answer", lambda *_: pytest.fail("estimated"))
    stage = Stage({"a": [whole(answer())]})
    await stage.run(stage.buffered(chain("a")))


async def test_failed_attempt_books_what_it_reports_and_the_serving_one_its_own() -> None:
    stage = Stage({"a": [whole(EMPTY)], "b": [whole(answer(usage={"prompt_tokens": 1, "completion_tokens": 2}))]})
    work = stage.buffered(chain("a", "b", triggers=Trigger.EMPTY_ANSWER))
    await stage.run(work)
    assert [record.usage for record in work.records] == [REPORTED, Usage(1, 2, origin="reported")]


async def test_tries_of_one_attempt_add_up() -> None:
    overloaded = whole(msgspec.json.encode({"error": {"code": "overloaded_error"}, "usage": USAGE}))
    stage = Stage({"a": [overloaded, whole(answer())]})
    work = stage.buffered(chain("a"), [leaf("a", prices=PRICES)], retry=RetryPolicy())
    await stage.run(work)
    assert work.records[0].usage == Usage(14, 10, origin="reported")
    assert work.records[0].cost_pico == 2 * (7 * PRICES.input + 5 * PRICES.output)


async def test_failed_attempt_that_reports_nothing_books_nothing() -> None:
    stage = Stage({"a": [refusal(503)], "b": [ScriptedAnswer(b'{"choices"', failure(Kind.ENDED_EARLY))]})
    work = stage.buffered(chain("a", "b"))
    await stage.fail(work)
    assert [record.usage.origin for record in work.records] == ["unknown", "unknown"]
