"""Ambiguous framing, each case with a canary behind it on the same connection.

There is one reading only: both requests are served, each for itself, or the first is refused with one 400 and the
connection closes. The canary never runs as part of the first, nor behind a refusal.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.framing import REFUSED, SERVED
from tests.lanes import CANARY, Client


def pieces(request: bytes) -> dict[str, tuple[bytes, ...]]:
    return {"whole": (request,), "byte by byte": tuple(request[at : at + 1] for at in range(len(request)))}


@pytest.mark.parametrize("cut", ["whole", "byte by byte"])
@pytest.mark.parametrize("name", REFUSED)
async def test_ambiguous_request_is_refused_and_nothing_behind_it_runs(name: str, cut: str) -> None:
    client = Client()
    client.send(*pieces(REFUSED[name] + CANARY)[cut])
    assert client.statuses == [400]
    assert b"LM-1001" in client.answers[0][2]
    assert b"connection: close" in client.answers[0][1]
    assert client.handler.calls == []
    assert client.pipe.half_closed


@pytest.mark.parametrize("cut", ["whole", "byte by byte"])
@pytest.mark.parametrize("name", SERVED)
async def test_plain_request_and_the_one_behind_it_are_served_each_for_itself(name: str, cut: str) -> None:
    request, body = SERVED[name]
    client = Client()
    client.send(*pieces(request + CANARY)[cut])
    assert client.statuses == [200, 200]
    assert [(call.path, call.body) for call in client.handler.calls] == [("/v1/x", body), ("/canary", b"")]
    assert not client.pipe.closed


@settings(max_examples=300, deadline=None)
@given(st.data())
async def test_mangled_request_has_one_reading_however_it_is_cut(data: st.DataObject) -> None:
    request = bytearray(data.draw(st.sampled_from([*(request for request, _ in SERVED.values()), *REFUSED.values()])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(request) - 1))
        request[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [b"", b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b"0", b"1", b";", b"\xff", b"x"]
            )
        )
    readings = set()
    cut = data.draw(st.integers(0, len(request)))
    whole = bytes(request) + CANARY
    for parts in ((whole,), (whole[:cut], whole[cut:]), pieces(whole)["byte by byte"]):
        client = Client()
        client.send(*parts)
        refusals = [status for status in client.statuses if status >= 400]
        assert len(refusals) <= 1
        assert len(client.handler.calls) + len(refusals) == len([each for each in client.statuses if each != 100])
        assert sum(call.path == "/canary" for call in client.handler.calls) <= 1
        readings.add(tuple((call.method, call.path, call.body) for call in client.handler.calls))
    assert len(readings) == 1
