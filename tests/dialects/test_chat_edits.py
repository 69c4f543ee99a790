"""Edits of a neutral request: what they name is changed, and nothing else."""

from __future__ import annotations

import msgspec

from lumen_gateway.dialects.chat_edits import edited
from lumen_gateway.dialects.neutral import Raw, Reasoning, Request, Text, Tool, Turn
from lumen_gateway.dialects.spans import Fields

ASKED = Request(
    turns=[Turn("system", [Text(text="be")]), Turn("user", [Text(text="hi", cache=Raw(b"{}"))])],
    tools=[Tool("search", native=Raw(b"{}"), dialect="messages"), Tool("f", cache=Raw(b"{}"))],
    max_tokens=9,
    temperature=1.0,
    top_k=3,
    stop=["x"],
    reasoning=Reasoning(budget_tokens=5000),
    unmapped=["container"],
)


def test_what_an_edit_sets_and_drops_is_taken_over_and_the_rest_stays() -> None:
    def edit(fields: Fields) -> None:
        fields["temperature"] = Raw(b"0.5")
        fields["seed"] = Raw(b"7")
        fields["max_tokens"] = Raw(b"50")
        fields.pop("stop")

    expected = msgspec.structs.replace(ASKED, temperature=0.5, seed=7, max_tokens=50, stop=())
    assert edited(ASKED, edit) == expected


def test_reasoning_is_edited_in_the_words_of_chat() -> None:
    def edit(fields: Fields) -> None:
        fields["reasoning_effort"] = Raw(b'"low"')

    assert edited(ASKED, edit).reasoning == Reasoning("low")


def test_edit_that_changes_nothing_leaves_the_request_as_it_is() -> None:
    assert edited(ASKED, lambda _: None) == ASKED
