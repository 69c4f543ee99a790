"""Reasoning: every spelling that vendors use is read, two are written, and what is signed comes back unchanged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lumen_gateway.dialects.chat_thinking import Reasoned, write_block, write_thinking
from lumen_gateway.dialects.neutral import Thinking

SIGNED = Thinking(text="so", signature="s1")
REDACTED = Thinking(redacted="d1")


def reasoned(**fields: Any) -> Reasoned:
    return msgspec.json.decode(json.dumps(fields), type=Reasoned)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_bare_text_is_thinking_without_proof(field: str) -> None:
    assert reasoned(**{field: "hm"}).thinking() == [Thinking(text="hm")]


def test_text_in_both_fields_is_said_once() -> None:
    assert reasoned(reasoning_content="hm", reasoning="hm").thinking() == [Thinking(text="hm")]


def test_blocks_are_read_in_their_order_and_the_text_that_repeats_them_is_not() -> None:
    blocks = [
        {"type": "thinking", "thinking": "so", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d1"},
    ]
    assert reasoned(reasoning_content="so", thinking_blocks=blocks).thinking() == [SIGNED, REDACTED]


def test_details_of_openrouter_are_read_where_they_prove_something() -> None:
    signed = [
        {"type": "reasoning.text", "text": "so", "signature": "s1", "format": "anthropic-claude-v1"},
        {"type": "reasoning.encrypted", "data": "d1", "format": "anthropic-claude-v1"},
    ]
    assert reasoned(reasoning="so", reasoning_details=signed).thinking() == [SIGNED, REDACTED]
    unsigned = [{"type": "reasoning.text", "text": "s", "format": None}]
    assert reasoned(reasoning="so", reasoning_details=unsigned).thinking() == [Thinking(text="so")]


def test_what_another_vendor_encrypted_is_no_redacted_thinking() -> None:
    details = [{"type": "reasoning.encrypted", "data": "d1", "format": "openai-responses-v1"}]
    assert reasoned(reasoning_details=details).thinking() == []


@pytest.mark.parametrize("odd", [7, {"effort": "low"}, [], "", None, [1, None, {"thinking": 3}]])
def test_fields_of_another_type_hold_no_reasoning(odd: Any) -> None:
    fields = dict.fromkeys(("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"), odd)
    assert reasoned(**fields).thinking() == []


def test_text_is_written_bare_and_only_what_is_proved_as_blocks() -> None:
    assert write_thinking([]) == {}
    assert write_thinking([Thinking(text="a"), Thinking(text="b")]) == {"reasoning_content": "ab"}
    assert write_thinking([Thinking(text="a"), SIGNED, REDACTED]) == {
        "reasoning_content": "aso",
        "thinking_blocks": [write_block(SIGNED), write_block(REDACTED)],
    }


@pytest.mark.parametrize("thinking", [SIGNED, REDACTED, Thinking(signature="alone")])
def test_a_block_that_is_written_reads_the_same_again(thinking: Thinking) -> None:
    assert reasoned(**write_thinking([thinking])).thinking() == [thinking]
