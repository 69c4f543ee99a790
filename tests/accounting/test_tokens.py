"""Estimates follow bytes, messages and images, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lumen_gateway.accounting import tokens
from lumen_gateway.accounting.tokens import estimate_chat, estimate_output, estimate_text
from lumen_gateway.dialects import responses
from lumen_gateway.dialects.chat import parse_request


def estimate(*messages: dict[str, Any], **fields: Any) -> int:
    return estimate_chat(parse_request(json.dumps({"model": "m", "messages": messages, **fields}).encode()))


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("é", 1), ("日本", 2), ("😀😀", 2)]
)
def test_text_is_a_quarter_of_its_bytes_rounded_up(text: str, tokens: int) -> None:
    assert estimate_text(text) == tokens
    assert estimate_output(len(text.encode())) == tokens


def test_each_message_costs_four_and_its_text() -> None:
    assert estimate({"role": "user", "content": "abcd"}) == 5
    assert (
        estimate({"role": "system", "content": "abcd"}, {"role": "assistant", "content": None}, {"role": "tool"}) == 13
    )


def test_parts_of_a_message_are_counted_as_one_text() -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]
    assert estimate({"role": "user", "content": parts}) == 5


def test_images_cost_by_detail_and_their_bytes_nothing() -> None:
    def image(**more: Any) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000, **more}}

    parts = [image(detail="low"), image(detail="high"), image(), {"type": "text", "text": "abcd"}]
    assert estimate({"role": "user", "content": parts}) == 4 + 85 + 765 + 765 + 1


def test_tools_do_not_count() -> None:
    assert (
        estimate({"role": "user", "content": "abcd"}, tools=[{"type": "function", "function": {"name": "x" * 400}}])
        == 5
    )


def test_responses_requests_are_estimated_by_their_own_dialect() -> None:
    assert tokens.estimate(responses.parse_request(b'{"model":"m","input":"12345678"}')) == 4 + 2
