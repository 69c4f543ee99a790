"""Bad requests: each answers its code at once, nothing of it is logged or reaches an upstream, and serving goes on.

Source: docs/errors.md.
"""

from __future__ import annotations

import gzip
import logging
import time

import msgspec
import pytest
from tests.house import JSON, House, answer, chat, question
from tests.lanes import Client

from lumen_gateway.dialects.spans import MAX_DEPTH, MAX_DIGITS

LIMIT = 4_000_000
CANARY = "CANARY-of-the-prompt"
SOON_S = 5.0  # generous: the slowest takes some 50 ms; what costs seconds for 4 MB is a weapon


def body(messages: str = f'[{{"role":"user","content":"{CANARY}"}}]', more: str = "") -> bytes:
    return f'{{"model":"a/m","messages":{messages}{more}}}'.encode()


def nested(depth: int, kind: str = "[]") -> str:
    opening, closing = ("[", "]") if kind == "[]" else ('{"a":', "}")
    return opening * depth + ("1" if kind == "{}" else "") + closing * depth


MALFORMED = {
    "empty": b"",
    "spaces": b"  \n ",
    "no JSON": CANARY.encode(),
    "cut": body()[:-1],
    "something behind": body() + b"{}",
    "comment": body(more=', /* "no" */ "a":1'),
    "trailing comma": body(more=","),
    "single quotes": b"{'model':'a/m'}",
    "byte order mark": b"\xef\xbb\xbf" + body(),
    "UTF-16": body().decode().encode("utf-16-le"),
    "invalid UTF-8 in a string": body().replace(b"CANARY", b"CAN\xff\xfeARY"),
    "cut UTF-8": body().replace(b"CANARY", b"CAN\xe2\x82ARY"),
    "overlong UTF-8": body().replace(b"CANARY", b"CAN\xc0\xafARY"),
    "surrogate as UTF-8": body().replace(b"CANARY", b"CAN\xed\xa0\x80ARY"),
    "lone surrogate": body(more=r', "user":"\ud800"'),
    "lone low surrogate": body(more=r', "user":"\udc00x"'),
    "surrogates the wrong way round": body(more=r', "user":"\udc00\ud800"'),
    "NaN": body(more=',"temperature":NaN'),
    "Infinity": body(more=',"temperature":Infinity'),
    "1e400": body(more=',"temperature":1e400'),
    "1e400 where nobody looks": body(more=',"unknown":1e400'),
    "5,000 digits": body(more=',"seed":' + "9" * 5000),
    "65 digits": body(more=',"seed":' + "9" * (MAX_DIGITS + 1)),
    "raw control character": body().replace(b"CANARY", b"CAN\x01ARY"),
    "nesting, just too deep": body(more=f',"a":{nested(MAX_DEPTH)}'),
    "100,000 arrays": body(more=f',"a":{nested(100_000)}'),
    "100,000 objects": body(more=f',"a":{nested(100_000, "{}")}'),
    "100,000 arrays and no end": b'{"a":' + b"[" * 100_000,
    "list": b"[" + body() + b"]",
    "text": b'"' + CANARY.encode() + b'"',
    "number": b"1",
    "null": b"null",
}

WRONG = {
    "no messages": b'{"model":"a/m"}',
    "messages null": body("null"),
    "empty messages": body("[]"),
    "messages a text": body(f'"{CANARY}"'),
    "message a text": body(f'["{CANARY}"]'),
    "message without a role": body(f'[{{"content":"{CANARY}"}}]'),
    "role a number": body(f'[{{"role":1,"content":"{CANARY}"}}]'),
    "no model": b'{"messages":[{"role":"user","content":"x"}]}',
    "model empty": body(more=',"model":""'),
    "model null": body(more=',"model":null'),
    "model a number": body(more=',"model":1'),
    "model a list": body(more=',"model":["a/m"]'),
    "stream a text": body(more=',"stream":"true"'),
    "stream a number": body(more=',"stream":1'),
    "stream_options a text": body(more=',"stream":true,"stream_options":"x"'),
    "temperature a text": body(more=',"temperature":"hot"'),
    "max_tokens negative": body(more=',"max_tokens":-1'),
    "max_tokens a fraction": body(more=',"max_tokens":1.5'),
    "max_tokens a text": body(more=',"max_tokens":"10"'),
    "n a text": body(more=',"n":"2"'),
}

UNUSABLE = {
    "unknown model": (body(more=',"model":"nope"'), 404, "LM-2001"),
    "another case": (body(more=',"model":"A/M"'), 404, "LM-2001"),
    "look-alike": (body(more=r',"model":"\u0430/m"'), 404, "LM-2001"),
    "zero-width": (body(more=r',"model":"a/m\u200b"'), 404, "LM-2001"),
    "NUL": (body(more=r',"model":"a/m\u0000"'), 404, "LM-2001"),
    "line break": (body(more=r',"model":"a/m\r\nx: y"'), 404, "LM-2001"),
    "very long": (body(more=f',"model":"{"a" * 100_000}"'), 404, "LM-2001"),
    "no streams": (body(more=',"model":"b/unstreamed","stream":true'), 400, "LM-2002"),
}

FINE = {
    "deep, just within": body(more=f',"a":{nested(MAX_DEPTH - 1)}'),
    "64 digits": body(more=',"seed":' + "9" * MAX_DIGITS),
    "surrogate pair": body(more=r', "user":"\ud83d\ude00"'),
    "escapes": body(more=r', "user":"\u0000\"\\\/"'),
    "50,000 messages": body("[" + ",".join([f'{{"role":"user","content":"{CANARY}"}}'] * 50_000) + "]"),
    "100,000 keys": body(more="".join(f',"k{number}":1' for number in range(100_000))),
    "one long text": body(f'[{{"role":"user","content":"{CANARY}{"x" * 3_000_000}"}}]'),
    "duplicate model": body(more=',"model":"b/m"'),
    "unknown fields": body(more=',"made_up":{"a":[1,2,3]},"another":null'),
}


async def refusal(request: bytes, headers: bytes = JSON) -> tuple[int, str, House, Client]:
    house = House(f"body_limit = {LIMIT}", a=answer(), b=answer())
    started_s = time.perf_counter()
    client = await house.post(request, headers)
    assert time.perf_counter() - started_s < SOON_S
    status, _, text = client.answers[0]
    error = msgspec.json.decode(text)["error"]
    assert CANARY not in error["message"]
    return status, error["code"], house, client


async def serves_on(house: House, client: Client) -> None:
    """The next good request on the same connection is served."""
    assert house.transport.sent == []
    assert not client.pipe.closed
    await house.ask("a/m", client)
    assert client.statuses[1:] == [200]


@pytest.mark.parametrize("name", MALFORMED | WRONG)
async def test_broken_body_is_1001(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="lumen")
    status, code, house, client = await refusal((MALFORMED | WRONG)[name])
    assert (status, code) == (400, "LM-1001")
    assert [record.levelname for record in caplog.records] == ["DEBUG", "DEBUG"]
    assert "CAN" not in caplog.text
    await serves_on(house, client)


@pytest.mark.parametrize("name", UNUSABLE)
async def test_model_that_cannot_serve_says_why(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="lumen")
    request, *expected = UNUSABLE[name]
    status, code, house, client = await refusal(request)
    assert [status, code] == expected
    assert CANARY not in caplog.text
    await serves_on(house, client)


@pytest.mark.parametrize("name", FINE)
async def test_odd_but_sound_body_is_served(name: str) -> None:
    house = House(f"body_limit = {LIMIT}", a=answer(), b=answer())
    client = await house.post(FINE[name])
    assert client.statuses == [200]


async def test_of_duplicate_fields_upstream_sees_only_what_routing_read() -> None:
    house = House(a=answer(), b=answer())
    await house.post(FINE["duplicate model"])
    [(leaf, payload)] = house.transport.sent
    assert leaf == "b"
    assert payload.count(b'"model"') == 1


@pytest.mark.parametrize("coded", [False, True])
async def test_body_over_the_limit_is_413_naming_it(coded: bool) -> None:
    request = body(f'[{{"role":"user","content":"{"x" * LIMIT}"}}]')
    headers = JSON
    if coded:
        request, headers = gzip.compress(request), JSON + b"content-encoding: gzip\r\n"
    house = House(f"body_limit = {LIMIT}")
    client = await house.post(request, headers)
    [(status, _, text)] = client.answers
    assert status == 413
    assert msgspec.json.decode(text)["error"]["code"] == "LM-1002"
    assert str(LIMIT) in text.decode()


@pytest.mark.parametrize(
    "media_type",
    [b"", b"content-type: text/plain\r\n", b"content-type: multipart/form-data; boundary=x\r\n",
     b"content-type: application/x-www-form-urlencoded\r\n", b"content-type: application/jsonx\r\n"],
)  # fmt: skip
async def test_body_that_does_not_say_it_is_json_is_refused(media_type: bytes) -> None:
    status, code, house, client = await refusal(question("a/m"), media_type)
    assert (status, code) == (400, "LM-1001")
    await serves_on(house, client)


@pytest.mark.parametrize(
    "media_type", [b"application/json; charset=utf-8", b"Application/JSON", b"application/vnd.api+json"]
)
async def test_other_ways_to_say_json_pass(media_type: bytes) -> None:
    house = House(a=answer())
    client = await house.post(question("a/m"), b"content-type: " + media_type + b"\r\n")
    assert client.statuses == [200]


async def test_many_bad_requests_in_a_row_leave_nothing_behind() -> None:
    house = House(f"body_limit = {LIMIT}", a=answer())
    client = house.connect()
    for request in [*MALFORMED.values(), *WRONG.values()] * 3:
        client.send(chat(request))
        await house.clock.advance(0)
    assert set(client.statuses) == {400}
    assert client.state.tasks == set()
    assert house.books.ends == []
    await house.ask("a/m", client)
    assert client.statuses[-1] == 200
