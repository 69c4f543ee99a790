"""What an Anthropic model takes of thinking and sampling, by its generation, and what it refuses together.

The API answers 400 where a thinking budget does not lie between 1024 and `max_tokens`, where thinking meets a forced
tool, a begun answer or other sampling than its own, or where a model is asked in the form of another generation. What
a client of another dialect asked for is fitted in here, so that none of these reaches the upstream:

- `max_tokens` set: the budget of an effort is at most half of it, a budget in tokens at most one less. Where less than
  1024 would be left, there is no thinking. `max_tokens` unset: 4096 come on top of the budget.
- No thinking with a forced tool, behind a begun answer, or in the middle of a tool's round whose own thinking the
  client has not kept.
- With thinking there is no temperature, top_p or top_k.

Source: Anthropic docs, "Extended thinking", "Adaptive thinking", "Effort", "Migration guide".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import dropwhile, takewhile
from typing import Literal, NamedTuple

from lumen_gateway.dialects.messages import DEFAULT_MAX_TOKENS
from lumen_gateway.dialects.messages_parts import Wire
from lumen_gateway.dialects.neutral import Request, Thinking, ToolCall, Turn

MIN_BUDGET_TOKENS = 1024
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 32_768}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_GENERATION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2})(?!\d))?(?!\d)")


class Ability(NamedTuple):
    """What one model takes."""

    thinking: Literal["none", "budget", "adaptive"] = "budget"
    sampling: Literal["none", "one", "all"] = "all"


def ability(model: str) -> Ability:
    """Return what a model takes, by its id at any vendor; what is no Claude is taken for one of the middle generations.

    Shape: thinking from 3.7 on, with a budget up to 4.5, adaptive from 4.6. One of temperature and top_p from 4.1 to
           4.6, neither from 4.7.
    """
    named = _GENERATION.search(model)
    if named is None:
        return Ability()
    generation = (int(named[1]), int(named[2] or 0))
    if generation < (3, 7):
        return Ability("none")
    return Ability(
        "budget" if generation < (4, 6) else "adaptive",
        "all" if generation < (4, 1) else "one" if generation < (4, 7) else "none",
    )


def limits(request: Request, model: str) -> Wire:
    """Return `max_tokens`, thinking and sampling for a request as this model takes them."""
    able = ability(model)
    fields = _thinking(request, able) if _may_think(request) else None
    if fields is not None:
        return fields
    limit = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    return {"max_tokens": limit, **_sampling(request, able)}


def _sampling(request: Request, able: Ability) -> Wire:
    fields: Wire = {}
    if able.sampling == "none":
        return fields
    if request.temperature is not None:
        fields["temperature"] = min(request.temperature, 1.0)
    if request.top_p is not None and not (fields and able.sampling == "one"):
        fields["top_p"] = request.top_p
    if request.top_k is not None:
        fields["top_k"] = request.top_k
    return fields


def cut(request: Request, model: str) -> list[str]:
    """Return the names of the fields that `limits` has left out or changed."""
    fields = limits(request, model)
    asked = {"temperature": request.temperature, "top_p": request.top_p, "top_k": request.top_k}
    names = [name for name, value in asked.items() if value is not None and fields.get(name) != value]
    if _wants_thinking(request) and "thinking" not in fields:
        names.append("reasoning")
    return names


def _wants_thinking(request: Request) -> bool:
    reasoning = request.reasoning
    return reasoning is not None and reasoning.enabled and reasoning.effort != "none"


def _may_think(request: Request) -> bool:
    choice = request.tool_choice
    if not _wants_thinking(request):
        return False
    if choice is not None and choice.mode in {"required", "tool"} and request.tools:
        return False
    return not _is_bound(request.turns)


def _is_bound(turns: Sequence[Turn]) -> bool:
    """Say whether the answer has begun already: by the client, or by a round of tools that did not begin with thinking.

    A round is everything the model said since the user last spoke, the results of its tools in between.
    """
    spoken = [turn for turn in turns if turn.role != "system"]
    if spoken and spoken[-1].role == "assistant":
        return True
    said = list(dropwhile(lambda turn: turn.role != "assistant", reversed(spoken)))
    if not said or not any(isinstance(part, ToolCall) for part in said[0].parts):
        return False
    round_ = [turn for turn in takewhile(lambda turn: turn.role != "user", said) if turn.role == "assistant"]
    return not any(map(_is_proved, round_[-1].parts))


def _is_proved(part: object) -> bool:
    return isinstance(part, Thinking) and bool(part.signature or part.redacted)


def _thinking(request: Request, able: Ability) -> Wire | None:
    reasoning, limit = request.reasoning, request.max_tokens
    if reasoning is None or able.thinking == "none":
        return None
    asked = reasoning.budget_tokens
    wanted = _BUDGETS.get(reasoning.effort, _BUDGETS["medium"]) if asked is None else max(asked, MIN_BUDGET_TOKENS)
    fields: Wire = {"max_tokens": wanted + DEFAULT_MAX_TOKENS if limit is None else limit}
    if able.thinking == "adaptive":
        effort = _EFFORTS.get(reasoning.effort) or _effort_of(asked)
        config: Wire = {"output_config": {"effort": effort}} if effort else {}
        return {**fields, "thinking": {"type": "adaptive"}, **config}
    if limit is not None:
        wanted = min(wanted, limit // 2 if asked is None else limit - 1)
    if wanted < MIN_BUDGET_TOKENS:
        return None
    return {**fields, "thinking": {"type": "enabled", "budget_tokens": wanted}}


def _effort_of(budget_tokens: int | None) -> str:
    if budget_tokens is None:
        return ""
    return next((name for name in ("low", "medium") if budget_tokens <= _BUDGETS[name]), "high")
