"""Facts: lazy, computed once, absent where a request has none."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from lumen_gateway.dialects import chat
from lumen_gateway.records import ANONYMOUS, Caller
from lumen_gateway.routing.facts import Facts

PLAIN = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
RICH = b"""{"model":"m","stream":true,"tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user",
"content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}"""


def facts_of(body: bytes, headers: list[tuple[bytes, bytes]] | None = None, caller: Caller = ANONYMOUS) -> Facts:
    return Facts.of_chat(chat.parse_request(body), headers or [], None, caller)


def test_chat_request_tells_its_facts() -> None:
    plain, rich = facts_of(PLAIN), facts_of(RICH)
    assert (plain.stream, plain.has_images, plain.has_tools) == (False, False, False)
    assert (rich.stream, rich.has_images, rich.has_tools) == (True, True, True)
    assert plain.input_tokens == 5
    assert rich.input_tokens == 770


def test_chat_request_has_no_documents() -> None:
    assert facts_of(PLAIN).documents is None


def test_fact_is_computed_when_asked_for_and_only_once() -> None:
    facts = facts_of(RICH)
    with patch.object(chat.ChatRequest, "messages", autospec=True, side_effect=chat.ChatRequest.messages) as counted:
        assert facts.stream
        assert counted.call_count == 0
        assert facts.input_tokens == facts.input_tokens
        assert counted.call_count == 1


def test_headers_are_text_under_lower_case_names_and_repeated_ones_are_joined() -> None:
    facts = facts_of(PLAIN, [(b"x-team", b"a"), (b"accept", b"*/*"), (b"x-team", b"caf\xe9")])
    assert facts.headers == {"x-team": "a, café", "accept": "*/*"}


@pytest.mark.parametrize(
    ("caller", "names"),
    [(ANONYMOUS, ()), (Caller(group_id="g1", group_name="acme"), ("g1", "acme")), (Caller(group_id="g1"), ("g1",))],
)
def test_group_goes_by_its_id_and_its_name(caller: Caller, names: tuple[str, ...]) -> None:
    assert facts_of(PLAIN, caller=caller).group_names == names


def test_absent_metadata_is_empty() -> None:
    assert facts_of(PLAIN).metadata == {}


def test_given_facts_are_taken_as_they_are_and_others_are_absent() -> None:
    facts = Facts.of(metadata={"plan": "pro"}, stream=True)
    assert (facts.metadata, facts.stream, facts.has_tools, facts.headers) == ({"plan": "pro"}, True, None, {})


def test_unknown_fact_is_an_error_of_the_caller() -> None:
    with pytest.raises(AttributeError):
        Facts.of(streem=True)
    with pytest.raises(AttributeError):
        Facts.of().streem  # noqa: B018 - the point
