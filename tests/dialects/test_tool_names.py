"""Long names of tools: shortened the same way everywhere, and given back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects.neutral import Request, Text, Tool, ToolCall, ToolChoice, ToolResult, Turn
from lumen_gateway.dialects.tool_names import long_names, shorten, with_long_names, with_short_names

LONG, OTHER = "n" * 70 + "_one", "n" * 70 + "_two"


@given(st.text(max_size=200), st.integers(16, 128))
def test_a_name_fits_and_one_that_fits_stays_as_it_is(name: str, limit: int) -> None:
    short = shorten(name, limit)
    assert len(short) <= limit
    assert (short == name) is (len(name) <= limit)


def test_names_that_differ_only_at_their_end_stay_apart() -> None:
    assert shorten(LONG, 64) != shorten(OTHER, 64)


def test_every_place_of_a_request_gets_the_same_short_name() -> None:
    request = Request(
        turns=[
            Turn("assistant", [Text(text="let me look"), ToolCall(id="1", name=LONG)]),
            Turn("tool", [ToolResult(call_id="1", name=LONG)]),
        ],
        tools=[Tool(LONG), Tool("plain")],
        tool_choice=ToolChoice("tool", LONG),
    )
    short = with_short_names(request, 64)
    names = {
        short.tools[0].name,
        short.tool_choice.tool if short.tool_choice else "",
        *(part.name for turn in short.turns for part in turn.parts if isinstance(part, ToolCall | ToolResult)),
    }
    assert names == {shorten(LONG, 64)}
    assert short.tools[1].name == "plain"
    assert long_names(request, 64) == {shorten(LONG, 64): LONG}


def test_a_request_whose_names_fit_is_not_touched() -> None:
    request = Request(turns=[], tools=[Tool("plain")])
    assert with_short_names(request, 64) is request
    assert long_names(request, 64) == {}


def test_an_answer_gets_its_long_names_back() -> None:
    parts = [Text(text="x"), ToolCall(id="1", name=shorten(LONG, 64)), ToolCall(id="2", name="plain")]
    told = with_long_names(parts, {shorten(LONG, 64): LONG})
    assert [part.name for part in told if isinstance(part, ToolCall)] == [LONG, "plain"]
