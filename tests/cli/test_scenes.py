"""The play of the demo: what a scene expects, what a provider does, and how the outcome is read off."""

from __future__ import annotations

import asyncio
import json

import pytest

from lumen_gateway.cli.scenes import ANSWERS, FAULTS, OK, SCENES, Notes, Provider, Scene, Seen, _attempts, _usage
from lumen_gateway.records import Usage
from lumen_gateway.simulator.upstream import Upstream


async def ask(upstream: Upstream, model: str) -> int:
    body = json.dumps({"model": model}).encode()
    reader, writer = await asyncio.open_connection(upstream.host, upstream.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    status_line = await reader.readline()
    writer.close()
    return int(status_line.split()[1])


def test_scene_expects_the_route_to_the_last_leaf_it_tries() -> None:
    scene = Scene("chat", (("a", "500"), ("b", OK)), via="smart>")
    assert scene.expected == Seen("chat>smart>b", (("a", "500"), ("b", OK)), "b")


def test_scene_that_ends_in_an_error_expects_no_route() -> None:
    assert Scene("smart", (("a", "500"),), error="502 LM-3003").expected == Seen(None, (("a", "500"),), "502 LM-3003")


def test_scenes_name_only_outcomes_that_providers_know() -> None:
    named = {outcome for scene in SCENES for _, *outcomes in scene.attempts for outcome in outcomes}
    assert named == {OK, *FAULTS}


def test_scenes_ask_for_leaves_that_providers_answer_for() -> None:
    assert {leaf.partition("/")[2] for scene in SCENES for leaf, *_ in scene.attempts} == set(ANSWERS)


async def test_provider_does_what_is_queued_for_the_leaf_and_then_answers() -> None:
    notes: Notes = []
    async with Provider("north", notes) as north:
        north.queued["north/big"] = ["500", "429"]
        statuses = [await ask(north, model) for model in ("big", "mini", "big", "big")]
    assert statuses == [500, 200, 429, 200]
    assert notes == [("north/big", "500"), ("north/mini", OK), ("north/big", "429"), ("north/big", OK)]


@pytest.mark.parametrize(
    ("notes", "first", "attempts"),
    [
        ([("a", OK)], None, (("a", OK),)),
        ([("a", "500"), ("a", "500"), ("b", OK)], "a", (("a", "500", "500"), ("b", OK))),
        ([("b", OK)], "a", (("a",), ("b", OK))),
        ([], None, ()),
    ],
)
def test_calls_are_grouped_by_leaf_and_one_left_alone_is_told_by_the_header(
    notes: Notes, first: str | None, attempts: object
) -> None:
    assert _attempts(notes, first) == attempts


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        (b'{"usage":{"prompt_tokens":3,"completion_tokens":4}}', Usage(3, 4, origin="reported")),
        (b"{}", None),
        (
            b'data: {"choices":[]}\n\ndata: {"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\ndata: [DONE]\n\n',
            Usage(3, 4, origin="reported"),
        ),
        (b'data: {"usage":null}\n\n', None),
    ],
)
def test_usage_is_read_from_an_answer_or_from_the_end_of_a_stream(body: bytes, usage: Usage | None) -> None:
    assert _usage(body) == usage
