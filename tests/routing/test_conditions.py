"""Conditions: what each operator means, and that the written form means the same as the asked one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.routing import documents

from lumen_gateway.routing.conditions import Condition, Matcher, describe, emit, holds, why_not
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.when import parse_when


def read(when: dict[str, Any], capability: str = "chat") -> Condition:
    condition, faults = parse_when(when, capability, ())
    assert condition is not None, faults
    return condition


def run(condition: Condition, facts: Facts) -> bool:
    """Evaluate the emitted expression the way a generated function does."""
    names: dict[str, object] = {}

    def bind(value: object) -> str:
        names[f"c{len(names)}"] = value
        return f"c{len(names) - 1}"

    expression = emit(condition, bind)
    return bool(eval(expression, names, {"facts": facts}))


@given(documents.conditions, documents.facts)
def test_emitted_expression_says_what_asking_says(when: dict[str, Any], facts: Facts) -> None:
    condition = read(when)
    assert run(condition, facts) == holds(condition, facts)


def metadata(value: object) -> Facts:
    return Facts.of(metadata={} if value is None else {"n": value})  # type: ignore[dict-item]  # what a client may send


HOLDS: list[tuple[Any, object, bool]] = [
    ("pro", "pro", True),
    ("pro", "Pro", False),
    ("pro", None, False),
    (1, 1.0, True),
    (0.3, 0.1 + 0.2, True),  # within the machine epsilon
    (1, 1.0000001, False),
    (1, True, False),
    (1, "1", False),
    (True, True, True),
    (True, 1.0, False),
    (False, None, False),
    ({"ne": "pro"}, "free", True),
    ({"ne": "pro"}, "pro", False),
    ({"ne": "pro"}, 1.0, True),  # another type is never equal
    ({"ne": "pro"}, None, False),  # absent fails every operator
    ({"ne": 0.3}, 0.1 + 0.2, False),
    ({"in": ["a", 1, False]}, "a", True),
    ({"in": ["a", 1, False]}, 1.0, True),
    ({"in": ["a", 1, False]}, True, False),
    ({"in": ["a", 1, False]}, 0.0, False),
    ({"in": ["a", 1, False]}, None, False),
    ({"gt": 5}, 5.0, False),
    ({"gt": 5}, 5.5, True),
    ({"gte": 5}, 5.0, True),
    ({"lt": 5}, 5.0, False),
    ({"lt": 5}, 4.0, True),
    ({"lte": 5}, 5.0, True),
    ({"gt": 0}, "6", False),
    ({"gt": 0}, True, False),
    ({"gt": 0}, None, False),
    ({"regex": "r"}, "pro", True),  # unanchored
    ({"regex": "^r"}, "pro", False),
    ({"regex": "1"}, 1.0, False),
    ({"regex": ""}, None, False),
    ({"regex": "é"}, "café", True),
]


@pytest.mark.parametrize(("condition", "value", "expected"), HOLDS)
def test_operator_means_what_the_page_says(condition: Any, value: object, expected: bool) -> None:
    parsed = read({"metadata.n": condition})
    assert holds(parsed, metadata(value)) is expected
    assert run(parsed, metadata(value)) is expected


GROUPS: list[tuple[Any, tuple[str, ...], bool]] = [
    ("acme", ("id1", "acme"), True),
    ("id1", ("id1", "acme"), True),
    ("acme", (), False),
    ({"ne": "other"}, ("id1", "acme"), True),
    ({"ne": "acme"}, ("id1", "acme"), False),
    ({"ne": "id1"}, ("id1", "acme"), False),
    ({"ne": "acme"}, (), False),
    ({"in": ["x", "acme"]}, ("id1", "acme"), True),
    ({"in": ["x", "y"]}, ("id1", "acme"), False),
    ({"regex": "^ac"}, ("id1", "acme"), True),
    ({"regex": "^ac"}, (), False),
]


@pytest.mark.parametrize(("condition", "names", "expected"), GROUPS)
def test_group_matches_by_its_id_or_its_name(condition: Any, names: tuple[str, ...], expected: bool) -> None:
    parsed = read({"group": condition})
    assert holds(parsed, Facts.of(group_names=names)) is expected
    assert run(parsed, Facts.of(group_names=names)) is expected


def test_fact_that_a_request_does_not_have_fails_every_operator() -> None:
    for operator in (True, {"ne": True}, {"in": [True, False]}):
        assert not holds(read({"has_images": operator}), Facts.of())
        assert not run(read({"has_images": operator}), Facts.of())


def test_header_is_compared_as_text() -> None:
    facts = Facts.of(headers={"x-team": "search"})
    assert holds(read({"header.X-Team": {"in": ["search"]}}), facts)
    assert not holds(read({"header.x-other": {"ne": "search"}}), facts)


def test_nothing_of_the_document_is_written_into_the_expression() -> None:
    when = {
        "metadata.EVIL": {"in": ["EVIL", 1]},
        "header.evil": {"regex": "EVIL"},
        "group": "EVIL",
        "any": [{"metadata.x": "EVIL"}],
    }
    bound: list[object] = []
    expression = emit(read(when), lambda value: f"c{bound.append(value) or len(bound)}")  # type: ignore[func-returns-value]  # None
    assert "evil" not in expression.lower()
    assert "EVIL" in bound


def test_matcher_searches_once_for_a_value_and_forgets_when_full() -> None:
    matcher = Matcher("^a")
    for number in range(Matcher.max_entries * 3):
        assert matcher[f"a{number}"]
        assert len(matcher) <= Matcher.max_entries
    assert f"a{number}" in matcher


def test_matcher_remembers_neither_long_values_nor_other_types() -> None:
    matcher = Matcher("a")
    assert matcher["a" * (Matcher.max_length + 1)]
    assert not matcher[None]
    assert not matcher[1.0]
    assert len(matcher) == 0


def test_matcher_takes_text_that_is_no_unicode() -> None:
    assert Matcher("b")["\ud800b"]


def test_pattern_that_is_exponential_elsewhere_runs_in_linear_time() -> None:
    assert not Matcher("^(a+)+$")["a" * 50_000 + "b"]


def test_description_reads_like_the_document() -> None:
    when = {
        "metadata.plan": {"regex": "^pro"},
        "any": [{"stream": True}, {"input_tokens": {"gt": 1000}}],
        "group": {"in": ["a", "b"]},
    }
    text = 'metadata.plan regex "^pro" and (stream = true or input_tokens gt 1000) and group in ["a", "b"]'
    assert describe(read(when)) == text


def test_description_of_a_long_list_is_cut() -> None:
    assert describe(read({"group": {"in": list("abcdefgh")}})) == 'group in ["a", "b", "c", "d", "e", ...]'


def test_reason_names_the_facts_that_decided() -> None:
    facts = Facts.of(metadata={"plan": "free"}, stream=True)
    assert why_not(read({"stream": True, "metadata.plan": "pro"}), facts) == 'metadata.plan is "free"'
    assert (
        why_not(read({"any": [{"group": "x"}, {"header.x-a": "b"}]}), facts)
        == "group is absent and header.x-a is absent"
    )
