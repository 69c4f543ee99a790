"""How much thinking a Gemini model is asked for: the number of tokens it may spend, within what the model takes.

Models before 2.5 do not think and refuse the field. Pro models cannot be told not to; they get their least.

Source: Gemini docs, "Thinking", and "OpenAI compatibility" for what an effort is worth.
"""

from __future__ import annotations

import re

from lumen_gateway.dialects.neutral import Reasoning

_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
_MOST_TOKENS = 24_576
_GENERATION = re.compile(r"gemini-(\d{1,2})(?:\.(\d{1,2}))?")
_FIRST_THINKING, _FIRST_STRICT = (2, 5), (3, 0)


def _generation(model: str) -> tuple[int, int]:
    """Return it as the id tells; a name without a number stands for the latest. A Gemma is no Gemini."""
    named = _GENERATION.search(model)
    if named is not None:
        return int(named[1]), int(named[2] or 0)
    return (0, 0) if "gemma" in model else _FIRST_STRICT


def can_think(model: str) -> bool:
    """Say whether a model thinks, by its id."""
    return _generation(model) >= _FIRST_THINKING


def wants_signatures(model: str) -> bool:
    """Say whether a model refuses a conversation in which a call comes back without its thought's signature."""
    return _generation(model) >= _FIRST_STRICT


def thinking_config(reasoning: Reasoning, model: str) -> dict[str, object]:
    """Return `thinkingConfig` for a model that thinks."""
    if not reasoning.enabled or reasoning.effort == "none":
        return {"thinkingBudget": _least(model, 0)}
    wanted = reasoning.budget_tokens
    if wanted is None:
        wanted = _BUDGETS.get(reasoning.effort, _BUDGETS["medium"])
    return {"includeThoughts": True, "thinkingBudget": min(_least(model, wanted), _MOST_TOKENS)}


def _least(model: str, wanted: int) -> int:
    """Return at least what the model takes: 128 for Pro, and for Flash-Lite 512 or nothing at all."""
    if "pro" in model:
        return max(wanted, 128)
    return max(wanted, 512) if wanted and "lite" in model else wanted
