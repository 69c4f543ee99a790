"""Counting tokens: the upstream's word where it has one, ours where it has none, and failures as anywhere."""

from __future__ import annotations

import msgspec
import pytest
from tests.execution.staging import ScriptedAnswer, Silence, Stage, chain, job, leaf

from lumen_gateway.config.schema import Overrides
from lumen_gateway.dialects import messages
from lumen_gateway.dialects.wire import MESSAGES
from lumen_gateway.errors import Kind
from lumen_gateway.execution.counting import TokenCount
from lumen_gateway.execution.executor import Job
from lumen_gateway.execution.leaf import Leaf
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.records import NO_USAGE
from lumen_gateway.routing.overrides import fold
from lumen_gateway.routing.plan import Attempt

BODY = b'{"model":"v","messages":[{"role":"user","content":"hello you"}],"odd":1.50}'
COUNTED = b'{"input_tokens":12, "more":1}'
ESTIMATED = b'{"input_tokens":7}'  # 4 for the message, 3 for its 9 bytes


def counting_leaf(leaf_id: str) -> Leaf:
    heads = {"messages": b"POST /messages HTTP/1.1\r\n"}
    head = b"POST /messages/count_tokens HTTP/1.1\r\n"
    return msgspec.structs.replace(leaf(leaf_id), heads=heads, count_head=head)


def refusal(status: int) -> ScriptedAnswer:
    body = b'{"type":"error","error":{"type":"some_error","message":"no"}}'
    return ScriptedAnswer(body, status=status, headers=[(b"content-type", b"application/json")])


def counting(
    stage: Stage, attempts: tuple[Attempt, ...], *leaves: Leaf, retry: RetryPolicy | None = None
) -> Job[bytes]:
    parts = stage.exchange(attempts, 1e9) | {"request": messages.parse_request(BODY), "dialect": MESSAGES}
    return job(TokenCount(**parts), attempts, leaves, retry=retry or RetryPolicy(max_tries=1))


async def test_upstream_that_counts_is_asked_with_its_own_name_of_the_model_and_no_override() -> None:
    stage = Stage({"a": [ScriptedAnswer(COUNTED)]})
    attempts = (Attempt("a", "of-a", edits=fold((Overrides(set={"temperature": 0.5, "max_tokens": 9}),))),)
    work = counting(stage, attempts, counting_leaf("a"))
    assert await stage.run(work) == COUNTED
    [(_, payload)] = stage.transport.sent
    assert payload.startswith(b"POST /messages/count_tokens HTTP/1.1\r\nauthorization: Bearer key-None\r\n")
    assert payload.partition(b"\r\n\r\n")[2] == BODY.replace(b'"v"', b'"a"')
    assert work.records[0].usage == NO_USAGE


async def test_leaf_that_speaks_something_else_is_not_called() -> None:
    stage = Stage({})
    assert await stage.run(counting(stage, chain("a"))) == ESTIMATED
    assert stage.transport.sent == []


@pytest.mark.parametrize("status", [404, 405])
async def test_upstream_without_the_call_is_estimated_and_not_left(status: int) -> None:
    stage = Stage({"a": [refusal(status)]})
    work = counting(stage, chain("a", "b"), counting_leaf("a"), counting_leaf("b"))
    assert await stage.run(work) == ESTIMATED
    assert [(record.leaf, record.outcome) for record in work.records] == [("a", "ok")]


async def test_failure_is_retried_and_then_fails_over() -> None:
    stage = Stage({"a": [refusal(500), refusal(500)], "b": [ScriptedAnswer(COUNTED)]})
    work = counting(stage, chain("a", "b"), counting_leaf("a"), counting_leaf("b"), retry=RetryPolicy(max_tries=2))
    assert await stage.run(work) == COUNTED
    assert stage.transport.asked == ["a", "a", "b"]


async def test_failure_falls_back_to_an_estimate_where_the_next_leaf_speaks_something_else() -> None:
    stage = Stage({"a": [ScriptedAnswer(Silence(1e6))]})
    assert await stage.run(counting(stage, chain("a", "b"), counting_leaf("a"))) == ESTIMATED


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"input_tokens":"7"}', b"<html>"])
async def test_what_is_no_count_is_malformed(body: bytes) -> None:
    stage = Stage({"a": [ScriptedAnswer(body)]})
    failure = await stage.fail(counting(stage, chain("a"), counting_leaf("a")))
    assert failure.kind is Kind.MALFORMED
    assert failure.provider == "of-a"


async def test_refusal_is_the_answer() -> None:
    stage = Stage({"a": [refusal(400)]})
    failure = await stage.fail(counting(stage, chain("a"), counting_leaf("a")))
    assert (failure.kind, failure.upstream_status) == (Kind.UPSTREAM_REFUSED, 400)
