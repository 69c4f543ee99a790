"""One request from first byte to last: routes, answers and errors, early heads, leaving, and books that close once."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
from tests.execution.staging import Silence, reset
from tests.house import (
    ANSWER,
    COUNT,
    DONE,
    JSON,
    ROLE,
    STOP,
    STREAM,
    WORD,
    House,
    answer,
    headers_of,
    question,
    stream,
)
from tests.lanes import Client

from lumen_gateway.errors import Failure, Kind

SECURITY = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]
BROKEN = Kind.UPSTREAM_ERROR
LONG_S = 3600.0


def only(client: Client) -> tuple[int, dict[str, str], bytes]:
    [(status, head, body)] = client.answers
    return status, headers_of(head), body


def error_of(client: Client) -> tuple[int, str, str]:
    status, _, body = only(client)
    error = msgspec.json.decode(body)["error"]
    assert set(error) == {"code", "message", "type"}
    return status, error["code"], error["message"]


def get(client: Client, path: bytes, method: bytes = b"GET", headers: bytes = b"") -> Client:
    client.send(method + b" " + path + b" HTTP/1.1\r\nhost: gateway\r\n" + headers + b"\r\n")
    return client


# --- routes -----------------------------------------------------------------------------------------------------------


async def test_health_answers_without_asking_anyone() -> None:
    house = House()
    status, headers, body = only(get(house.connect(), b"/health"))
    assert status == 200
    assert msgspec.json.decode(body)["status"] == "ok"
    assert headers.items() >= SECURITY.items()
    assert house.counts.answers == [("GET", "/health", 200)]


async def test_models_are_listed_and_shown_hidden_ones_when_named() -> None:
    house = House()
    _, _, body = only(get(house.connect(), b"/v1/models"))
    listed = [entry["id"] for entry in msgspec.json.decode(body)["data"]]
    assert {"a/m", "b/m", "smart"} <= set(listed)
    assert "hidden" not in listed
    for path in (b"/v1/models/smart", b"/v1/models/a/m", b"/v1/models/a%2Fm"):
        status, _, body = only(get(house.connect(), path))
        assert status == 200, path
        assert msgspec.json.decode(body)["id"] in {"smart", "a/m"}


@pytest.mark.parametrize("path", [b"/v1/models/nope", b"/v1/models/%00", b"/v1/models/", b"/v1/models/%ff%fe"])
async def test_model_that_is_not_there_is_2001(path: bytes) -> None:
    house = House()
    assert error_of(get(house.connect(), path))[:2] == (404, "LM-2001")
    assert house.counts.answers == [("GET", "/v1/models/{id}", 404)]


@pytest.mark.parametrize(
    "path", [b"/v1/nope", b"/v1/chat/completions/", b"/v1/Models", b"/v1//models", b"/v1/./models"]
)
async def test_path_is_taken_as_it_is_written(path: bytes) -> None:
    house = House()
    status, code, message = error_of(get(house.connect(), path))
    assert (status, code) == (404, "LM-1003")
    assert path.decode() not in message
    assert house.counts.answers == [("GET", "unmatched", 404)]


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        (b"/v1/chat/completions", b"GET", "POST"),
        (b"/v1/chat/completions", b"OPTIONS", "POST"),
        (b"/v1/models", b"POST", "GET, HEAD"),
        (b"/v1/models/a/m", b"DELETE", "GET, HEAD"),
        (b"/health", b"PUT", "GET, HEAD"),
    ],
)
async def test_wrong_method_says_which_is_right(path: bytes, method: bytes, allowed: str) -> None:
    client = get(House().connect(), path, method)
    status, headers, _ = only(client)
    assert (status, headers["allow"]) == (405, allowed)
    assert error_of(client)[1] == "LM-1003"


@pytest.mark.parametrize("path", [b"/health", b"/v1/models", b"/v1/models/a/m"])
async def test_head_is_get_without_its_body(path: bytes) -> None:
    whole, head = get(House().connect(), path), get(House().connect(), path, b"HEAD")
    (status, headers, body), sent = only(whole), head.pipe.sent
    assert sent.startswith(b"HTTP/1.1 %d " % status)
    assert sent.endswith(b"content-length: %d\r\n\r\n" % len(body))
    assert headers["content-type"].encode() in sent


async def test_everything_else_is_the_keepers() -> None:
    house = House()
    for path, template in ((b"/metrics", "/metrics"), (b"/admin/keys", "unmatched"), (b"//v1/models", "unmatched")):
        client = get(house.connect(), path)
        await house.clock.advance(0)
        assert only(client)[2] == b"from the keeper"
        assert house.counts.answers.pop() == ("GET", template, 200)


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_answer_passes_through_and_says_who_gave_it() -> None:
    house = House(a=answer())
    status, headers, body = only(await house.ask("a/m", headers=JSON + b"x-request-id: mine\r\n"))
    assert (status, body) == (200, ANSWER)
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"] == "mine"
    assert (headers["x-lumen-model-used"], headers["x-lumen-provider"]) == ("a/m", "a")
    assert headers["x-lumen-reason"] == "direct"
    assert "x-lumen-route" not in headers
    assert headers.items() >= SECURITY.items()


async def test_fallback_says_from_where_and_how_far() -> None:
    house = House(a=BROKEN, b=answer())
    status, headers, _ = only(await house.ask("smart"))
    assert status == 200
    assert headers["x-lumen-model-used"] == "b/m"
    assert headers["x-lumen-route"] == "smart>b/m"
    assert (headers["x-lumen-virtual-model"], headers["x-lumen-reason"]) == ("smart", "virtual-model")
    assert (headers["x-lumen-fallback-from"], headers["x-lumen-fallback-index"]) == ("a/m", "0")


async def test_upstream_gets_its_own_name_of_the_model_and_no_header_of_the_client() -> None:
    house = House(b=answer())
    await house.ask("b/m", headers=JSON + b"cookie: secret\r\nauthorization: Bearer sk\r\nopenai-beta: x\r\n")
    [(_, payload)] = house.transport.sent
    head, _, body = payload.partition(b"\r\n\r\n")
    assert msgspec.json.decode(body)["model"] == "m-of-b"
    assert b"openai-beta: x" in head
    assert b"secret" not in payload
    assert b"Bearer sk" not in payload


async def test_stream_passes_through_with_its_headers_first() -> None:
    house = House(a=stream())
    status, headers, body = only(await house.ask("smart", stream=True))
    assert (status, body) == (200, ROLE + WORD + STOP + DONE)
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-lumen-route"] == "smart>a/m"


async def test_stream_fails_over_before_its_first_output() -> None:
    house = House(a=stream(ROLE, reset()), b=stream())
    _, headers, body = only(await house.ask("smart", stream=True))
    assert body == ROLE + WORD + STOP + DONE
    assert headers["x-lumen-fallback-from"] == "a/m"


async def test_stream_that_breaks_after_its_first_output_ends_in_one_error_frame() -> None:
    house = House(a=stream(ROLE, WORD, reset()), b=stream())
    _, _, body = only(await house.ask("smart", stream=True))
    assert body.startswith(ROLE + WORD)
    [frame] = [line for line in body[len(ROLE + WORD) :].split(b"\n\n") if line]
    assert msgspec.json.decode(frame.removeprefix(b"data: "))["error"]["code"] == "LM-3010"
    assert house.transport.asked == ["a"]
    assert (house.record.status, house.record.code) == (502, "LM-3010")


async def test_complete_commit_hides_a_broken_stream() -> None:
    house = House(a=stream(ROLE, WORD, reset()), b=stream())
    _, headers, body = only(await house.ask("held", stream=True))
    assert body == ROLE + WORD + STOP + DONE
    assert headers["x-lumen-model-used"] == "b/m"


async def test_preset_is_part_of_what_the_upstream_reads() -> None:
    house = House(a=answer())
    await house.ask("polite")
    [(_, payload)] = house.transport.sent
    messages = msgspec.json.decode(payload.partition(b"\r\n\r\n")[2])["messages"]
    assert [message["role"] for message in messages] == ["system", "user"]


@pytest.mark.parametrize(("header", "asked"), [(b"x-lumen-metadata", "b"), (b"cf-aig-metadata", "b"), (b"x", "a")])
async def test_metadata_routes(header: bytes, asked: str) -> None:
    house = House(a=answer(), b=answer())
    await house.ask("by-team", headers=JSON + header + b': {"team":"red"}\r\n')
    assert house.transport.asked == [asked]


@pytest.mark.parametrize("own", [b"", b"{"])
async def test_second_metadata_header_is_read_only_where_the_first_is_absent(own: bytes) -> None:
    house = House(a=answer(), b=answer())
    both = b"x-lumen-metadata: " + own + b'\r\ncf-aig-metadata: {"team":"red"}\r\n'
    await house.ask("by-team", headers=JSON + both)
    assert house.transport.asked == ["a"]
    assert house.counts.rejected == 1


@pytest.mark.parametrize("value", [b"not json", b'{"team":["red"]}', b'{"team":"' + b"r" * 300 + b'"}'])
async def test_broken_metadata_is_dropped_and_counted(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    house = House(a=answer(), b=answer())
    client = await house.ask("by-team", headers=JSON + b"x-lumen-metadata: " + value + b"\r\n")
    assert client.statuses == [200]
    assert house.transport.asked == ["a"]
    assert house.counts.rejected == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert value.decode() not in caplog.text


# --- early heads ------------------------------------------------------------------------------------------------------


async def until_sent(client: Client, text: bytes) -> None:
    async with asyncio.timeout(10):
        while text not in client.pipe.sent:  # noqa: ASYNC110 - the heartbeat runs on the loop's own clock
            await asyncio.sleep(0.001)


async def test_slow_stream_gets_its_head_early_and_its_route_before_the_first_frame() -> None:
    house = House("sse_heartbeat_ms = 1", a=stream(Silence(20), ROLE, Silence(2), reset()), b=stream())
    client = await house.ask("smart", stream=True)
    await until_sent(client, b": ping\n\n")
    await house.clock.advance(LONG_S)
    _, headers, body = only(client)
    assert "x-lumen-route" not in headers
    route = b": x-lumen-route=smart>b/m x-lumen-model-used=b/m x-lumen-provider=b x-lumen-virtual-model=smart"
    comments, _, frames = body.partition(route)
    assert comments.replace(b": ping\n\n", b"") == b""
    assert frames.partition(b"\n")[2] == ROLE + WORD + STOP + DONE


async def test_chain_exhausted_behind_an_early_head_is_an_error_frame() -> None:
    house = House("sse_heartbeat_ms = 1", a=stream(Silence(20), reset()), b=Kind.UNREACHABLE)
    client = await house.ask("smart", stream=True)
    await until_sent(client, b": ping\n\n")
    await house.clock.advance(LONG_S)
    status, _, body = only(client)
    assert status == 200
    frame = body.rpartition(b"data: ")[2]
    assert msgspec.json.decode(frame)["error"]["code"] == "LM-3004"
    assert DONE not in body
    assert (house.record.status, house.record.code) == (503, "LM-3004")


async def test_early_heads_can_be_turned_off() -> None:
    house = House("sse_heartbeat_ms = 1\nearly_headers = false", a=stream(Silence(20), *STREAM))
    client = await house.ask("a/m", stream=True)
    await asyncio.sleep(0.01)
    assert client.pipe.sent == b""
    await house.clock.advance(LONG_S)
    assert only(client)[1]["x-lumen-model-used"] == "a/m"


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_exhausted_chain_answers_with_its_last_error() -> None:
    client = await House(a=BROKEN, b=Kind.UNREACHABLE).ask("smart")
    status, headers, _ = only(client)
    assert (status, headers["x-lumen-fallback-exhausted"]) == (503, "true")
    assert error_of(client)[1] == "LM-3004"
    assert '"b"' in error_of(client)[2]
    assert "x-lumen-model-used" not in headers


async def test_first_failure_without_a_way_out_is_no_exhausted_chain() -> None:
    status, headers, _ = only(await House(a=BROKEN).ask("a/m"))
    assert status == 502
    assert "x-lumen-fallback-exhausted" not in headers


@pytest.mark.parametrize("stream", [False, True])
async def test_image_goes_past_a_leaf_that_takes_none(stream: bool) -> None:
    house = House(a=answer() if not stream else answer(*STREAM))
    client = await house.ask("reverse", messages=IMAGE, stream=stream)
    assert client.statuses == [200]
    assert house.transport.asked == ["a"]


async def test_image_without_a_leaf_that_takes_it_is_2003() -> None:
    house = House()
    assert error_of(await house.ask("b/m", messages=IMAGE)) == (400, "LM-2003", 'model "b/m" takes no images')
    assert house.transport.sent == []


async def test_stream_without_a_leaf_that_streams_is_2002() -> None:
    status, code, message = error_of(await House().ask("b/unstreamed", stream=True))
    assert (status, code) == (400, "LM-2002")
    assert "stream" in message


async def test_ledger_may_refuse_before_anything_is_sent() -> None:
    house = House(a=answer())
    house.books.refusal = Failure(Kind.RATE_LIMITED, "the budget is used up", retry_after_s=12.9)
    status, headers, _ = only(await house.ask("a/m"))
    assert (status, headers["retry-after"]) == (429, "12")
    assert house.transport.sent == []
    assert house.books.ends == []


async def test_crash_is_a_500_that_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.transport.script = {}  # the fake upstream itself fails now
    client = await house.ask("a/m")
    assert error_of(client)[:2] == (500, "LM-5001")
    assert "KeyError" not in client.pipe.sent.decode()
    assert "KeyError" in caplog.text
    assert house.record.status == 500
    assert house.books.ends == [[None]]


# --- books ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
async def test_success_is_settled_once_with_what_it_used(streamed: bool) -> None:
    house = House(a=stream() if streamed else answer())
    await house.ask("a/m", stream=streamed)
    assert house.books.ends == [[(15_000_000, 12)]]
    record = house.record
    assert (record.requested, record.status, record.stream, record.code) == ("a/m", 200, streamed, None)
    assert [(attempt.leaf, attempt.outcome) for attempt in record.attempts] == [("a/m", "ok")]


async def test_failure_is_released_once() -> None:
    house = House(a=BROKEN, b=BROKEN)
    await house.ask("smart")
    assert house.books.ends == [[None]]
    assert [(attempt.leaf, attempt.escape) for attempt in house.record.attempts] == [
        ("a/m", "provider_error"),
        ("b/m", None),
    ]


async def test_stream_cut_after_its_commit_is_settled_once_as_an_estimate() -> None:
    house = House(a=stream(ROLE, WORD, reset()))
    await house.ask("a/m", stream=True)
    [[end]] = house.books.ends
    assert end is not None
    assert house.record.attempts[0].usage.origin == "estimated"


async def test_refusal_before_admission_leaves_one_record_and_no_reservation() -> None:
    house = House()
    await house.ask("nope")
    assert (house.record.status, house.record.code) == (404, "LM-2001")
    assert house.books.ends == []


PHASES = {
    "before the first byte": (False, (Silence(LONG_S),), b""),
    "in an unstreamed body": (False, (ANSWER[:50], Silence(LONG_S)), b""),
    "before the commit": (True, (ROLE, Silence(LONG_S)), b""),
    "in the stream": (True, (ROLE, WORD, Silence(LONG_S)), ROLE + WORD),
}


@pytest.mark.parametrize("phase", PHASES)
async def test_client_that_leaves_cuts_the_upstream_and_is_booked_once_as_499(phase: str) -> None:
    streamed, pieces, seen = PHASES[phase]
    house = House(a=answer(*pieces), b=answer())
    client = await house.ask("smart", stream=streamed)
    assert b"".join(body for _, _, body in client.answers) == seen
    client.leave()
    await house.clock.advance(1)
    assert [upstream.over for upstream in house.transport.answers] == ["closed"]
    assert house.transport.asked == ["a"]
    assert (house.record.status, house.record.code) == (499, "LM-6001")
    [ends] = house.books.ends
    assert len(ends) == 1
    assert client.state.tasks == set()


async def test_client_that_leaves_at_once_is_booked_too() -> None:
    house = House(a=answer())
    client = house.connect()
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n" + JSON + b"content-length: 2\r\n\r\n{}")
    client.leave()
    await house.clock.advance(0)
    assert len(house.counts.records) == 1


async def test_request_cut_by_the_end_of_the_drain_is_told_so() -> None:
    house = House(a=answer(Silence(LONG_S)), b=stream(ROLE, WORD, Silence(LONG_S)))
    waiting, streaming = await house.ask("a/m"), await house.ask("b/m", stream=True)
    house.gateway.cut()
    for client in (waiting, streaming):
        for task in tuple(client.state.tasks):
            task.cancel()
    await house.clock.advance(0)
    status, code, _ = error_of(waiting)
    assert (status, code) == (503, "LM-5001")
    assert b"LM-5001" in only(streaming)[2]
    assert [record.status for record in house.counts.records] == [503, 503]


# --- log --------------------------------------------------------------------------------------------------------------


async def test_success_logs_one_line_at_debug_and_nothing_above(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="lumen")
    house = House(a=answer())
    await house.ask("smart", headers=JSON + b"x-request-id: mine\r\n")
    [line] = caplog.records
    assert line.levelno == logging.DEBUG
    assert (line.action, line.fields["request_id"]) == ("request.done", "mine")  # type: ignore[attr-defined]  # extras


async def test_request_keeps_the_document_it_began_with() -> None:
    house = House(a=[answer(Silence(5), ANSWER), answer()])
    client = await house.ask("a/m")
    house.gateway.snapshot = House().gateway.snapshot
    await house.clock.advance(10)
    assert client.statuses == [200]


async def test_usage_frame_goes_to_a_client_that_asked_for_it() -> None:
    house = House(a=stream())
    body = question("a/m", stream=True, stream_options={"include_usage": True})
    assert only(await house.post(body))[2] == ROLE + WORD + STOP + COUNT + DONE
