"""How much thinking is asked for, by what the client said and what the model takes."""

from __future__ import annotations

import pytest

from lumen_gateway.dialects.gemini_thinking import can_think, thinking_config, wants_signatures
from lumen_gateway.dialects.neutral import Reasoning


@pytest.mark.parametrize(
    ("model", "thinks", "strict"),
    [
        ("gemini-2.0-flash", False, False),
        ("gemini-2.5-pro", True, False),
        ("gemini-3-pro-preview", True, True),
        ("gemini-flash-latest", True, True),
        ("gemma-3-27b-it", False, False),
    ],
)
def test_generation_decides_what_a_model_takes(model: str, thinks: bool, strict: bool) -> None:
    assert can_think(model) is thinks
    assert wants_signatures(model) is strict


@pytest.mark.parametrize(
    ("reasoning", "model", "tokens"),
    [
        (Reasoning("minimal"), "gemini-2.5-flash", 1024),
        (Reasoning("high"), "gemini-2.5-flash", 24_576),
        (Reasoning("unheard-of"), "gemini-2.5-flash", 8192),
        (Reasoning(budget_tokens=500_000), "gemini-2.5-flash", 24_576),
        (Reasoning(budget_tokens=1), "gemini-2.5-flash-lite", 512),
        (Reasoning(budget_tokens=1), "gemini-2.5-pro", 128),
    ],
)
def test_budget_stays_within_what_the_model_takes(reasoning: Reasoning, model: str, tokens: int) -> None:
    assert thinking_config(reasoning, model) == {"includeThoughts": True, "thinkingBudget": tokens}


@pytest.mark.parametrize("reasoning", [Reasoning("none"), Reasoning(enabled=False)])
@pytest.mark.parametrize(
    ("model", "tokens"), [("gemini-2.5-flash", 0), ("gemini-2.5-flash-lite", 0), ("gemini-2.5-pro", 128)]
)
def test_no_thinking_is_as_little_as_the_model_can(reasoning: Reasoning, model: str, tokens: int) -> None:
    assert thinking_config(reasoning, model) == {"thinkingBudget": tokens}
