"""What is made of thinking and sampling: by generation, by limit, and never what the API refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects.messages_limits import Ability, ability, cut, limits
from lumen_gateway.dialects.neutral import (
    Part,
    Reasoning,
    Request,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
)

BUDGET, ADAPTIVE, OLD = "claude-sonnet-4-5", "claude-opus-4-7", "claude-3-5-sonnet-20241022"


def turn(role: Role, *parts: Part) -> Turn:
    return Turn(role, list(parts))


SAID = turn("user", Text(text="hi"))
CALL, RESULT = ToolCall(id="t", name="add"), turn("tool", ToolResult(call_id="t"))
SIGNED = Thinking(text="hm", signature="s")


def asked(model: str = BUDGET, effort: str = "high", **fields: Any) -> dict[str, Any]:
    fields.setdefault("turns", [SAID])
    return limits(Request(reasoning=Reasoning(effort), **fields), model)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-3-opus-20240229", Ability("none", "all")),
        ("claude-3-5-sonnet@20240620", Ability("none", "all")),
        ("claude-2.1", Ability("none", "all")),
        ("claude-3-7-sonnet-20250219", Ability("budget", "all")),
        ("claude-sonnet-4-20250514", Ability("budget", "all")),
        ("claude-opus-4-1-20250805", Ability("budget", "one")),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", Ability("budget", "one")),
        ("anthropic/claude-haiku-4.5", Ability("budget", "one")),
        ("claude-opus-4-6", Ability("adaptive", "one")),
        ("claude-opus-4-7", Ability("adaptive", "none")),
        ("claude-sonnet-5", Ability("adaptive", "none")),
        ("claude-opus-5-20270101", Ability("adaptive", "none")),
        ("kimi-k2", Ability("budget", "all")),
        ("claude-x", Ability("budget", "all")),
    ],
)
def test_generation_is_read_from_the_id_of_any_vendor(model: str, expected: Ability) -> None:
    assert ability(model) == expected


def test_effort_becomes_a_budget_on_top_of_the_default_limit() -> None:
    assert asked() == {"max_tokens": 16_384 + 4096, "thinking": {"type": "enabled", "budget_tokens": 16_384}}
    assert asked(effort="minimal")["thinking"]["budget_tokens"] == 1024
    assert asked(effort="a word of next year")["thinking"]["budget_tokens"] == 8192


def test_budget_of_an_effort_leaves_half_of_the_clients_limit() -> None:
    assert asked(max_tokens=4000) == {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}}
    assert asked(max_tokens=2047) == {"max_tokens": 2047}


def test_budget_in_tokens_is_kept_as_far_as_the_api_allows() -> None:
    def budget(tokens: int, limit: int | None) -> Any:
        request = Request(turns=[SAID], reasoning=Reasoning(budget_tokens=tokens), max_tokens=limit)
        return limits(request, BUDGET).get("thinking")

    assert budget(3000, 4000) == {"type": "enabled", "budget_tokens": 3000}
    assert budget(5000, 4000) == {"type": "enabled", "budget_tokens": 3999}
    assert budget(10, 4000) == {"type": "enabled", "budget_tokens": 1024}
    assert budget(3000, 1024) is None


def test_newer_models_think_adaptively() -> None:
    assert asked(ADAPTIVE, max_tokens=100) == {
        "max_tokens": 100,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
    }
    assert asked(ADAPTIVE, "minimal")["output_config"] == {"effort": "low"}
    assert "output_config" not in asked(ADAPTIVE, "")
    by_budget = Request(turns=[SAID], reasoning=Reasoning(budget_tokens=5000))
    assert limits(by_budget, ADAPTIVE)["output_config"] == {"effort": "medium"}


def test_models_that_cannot_think_are_not_asked_to() -> None:
    assert asked(OLD, temperature=0.2) == {"max_tokens": 4096, "temperature": 0.2}


@pytest.mark.parametrize("reasoning", [None, Reasoning("none"), Reasoning("high", enabled=False)])
def test_no_thinking_unless_it_is_wanted(reasoning: Reasoning | None) -> None:
    assert limits(Request(turns=[SAID], reasoning=reasoning, max_tokens=9), BUDGET) == {"max_tokens": 9}


def test_thinking_leaves_no_room_for_other_sampling() -> None:
    assert asked(temperature=0.2, top_p=0.5, top_k=3).keys() == {"max_tokens", "thinking"}


@pytest.mark.parametrize("mode", ["required", "tool"])
def test_forced_tool_and_thinking_do_not_meet(mode: Any) -> None:
    choice = ToolChoice(mode, "t")
    assert "thinking" not in asked(tool_choice=choice, tools=[Tool("t")])
    assert "thinking" in asked(tool_choice=choice)
    assert "thinking" in asked(tool_choice=ToolChoice("auto"), tools=[Tool("t")])


@pytest.mark.parametrize(
    ("turns", "thinks"),
    [
        ([SAID], True),
        ([turn("system", Text(text="s"))], True),
        ([SAID, turn("assistant", Text(text="begun"))], False),
        ([SAID, turn("assistant", Text(text="a")), SAID], True),
        ([SAID, turn("assistant", CALL), RESULT], False),
        ([SAID, turn("assistant", CALL), RESULT, SAID], False),
        ([SAID, turn("assistant", SIGNED, CALL), RESULT], True),
        ([SAID, turn("assistant", Thinking(redacted="x"), CALL), RESULT], True),
        ([SAID, turn("assistant", Thinking(text="unsigned"), CALL), RESULT], False),
        ([SAID, turn("assistant", SIGNED, CALL), RESULT, turn("assistant", CALL), RESULT], True),
        ([SAID, turn("assistant", CALL), RESULT, turn("assistant", SIGNED, CALL), RESULT], False),
        ([SAID, turn("assistant", CALL), RESULT, turn("assistant", Text(text="a")), SAID], True),
        ([SAID, turn("assistant", CALL), RESULT, SAID, turn("assistant", SIGNED, CALL), RESULT], True),
    ],
)
def test_thinking_does_not_start_in_the_middle_of_an_answer(turns: list[Turn], thinks: bool) -> None:
    assert ("thinking" in asked(turns=turns)) is thinks


def test_sampling_is_what_the_generation_takes() -> None:
    request = Request(turns=[SAID], temperature=1.5, top_p=0.5, top_k=3, max_tokens=9)
    assert limits(request, OLD) == {"max_tokens": 9, "temperature": 1.0, "top_p": 0.5, "top_k": 3}
    assert limits(request, BUDGET) == {"max_tokens": 9, "temperature": 1.0, "top_k": 3}
    assert limits(request, ADAPTIVE) == {"max_tokens": 9}
    assert limits(Request(turns=[SAID], top_p=0.5), BUDGET) == {"max_tokens": 4096, "top_p": 0.5}


def test_what_was_left_out_is_named() -> None:
    request = Request(turns=[SAID], temperature=1.5, top_p=0.5, top_k=3, reasoning=Reasoning("none"), max_tokens=9)
    assert cut(request, OLD) == ["temperature"]
    assert cut(request, BUDGET) == ["temperature", "top_p"]
    assert cut(request, ADAPTIVE) == ["temperature", "top_p", "top_k"]
    assert cut(Request(turns=[SAID], reasoning=Reasoning("low"), max_tokens=9), BUDGET) == ["reasoning"]
    assert cut(Request(turns=[SAID], reasoning=Reasoning("low"), temperature=1), BUDGET) == ["temperature"]
    assert cut(Request(turns=[SAID], reasoning=Reasoning("low")), BUDGET) == []


def test_limit_of_zero_is_a_limit() -> None:
    assert limits(Request(turns=[SAID], max_tokens=0), BUDGET) == asked(max_tokens=0) == {"max_tokens": 0}


COUNTS = st.none() | st.integers(1, 100_000)


@given(st.sampled_from(["", "low", "high", "odd"]), COUNTS, COUNTS, st.sampled_from([BUDGET, ADAPTIVE, OLD, "x"]))
def test_no_request_for_thinking_breaks_the_rules(
    effort: str, budget: int | None, limit: int | None, model: str
) -> None:
    fields: dict[str, Any] = limits(
        Request(turns=[SAID], reasoning=Reasoning(effort, budget), max_tokens=limit, temperature=0.1), model
    )
    assert limit is None or fields["max_tokens"] == limit
    thinking = fields.get("thinking")
    assert thinking is None or "temperature" not in fields
    if thinking is not None and thinking["type"] == "enabled":
        assert 1024 <= thinking["budget_tokens"] < fields["max_tokens"]
