"""Presets: the system prompt goes in, and everything else stays as the client wrote it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.config.schema import Preset
from lumen_gateway.dialects import responses
from lumen_gateway.routing.presets import apply_preset, prompted

PROMPT = '{"role":"system","content":"Be \\"kind\\" é"}'
USER = '{ "role" : "user", "content":"a, [b]", "x":1.0e3 }'
SYSTEM = '{"content":"own", "role":"system"}'
DEVELOPER = '{"role":"developer","content":[{"type":"text","text":"own"}]}'


def applied(mode: str, messages: str) -> str:
    preset = msgspec.convert({"system_prompt": 'Be "kind" é', "system_prompt_mode": mode}, Preset)
    return bytes(apply_preset(preset, msgspec.Raw(messages.encode()))).decode()


def test_prepend_puts_the_prompt_first_and_touches_nothing_else() -> None:
    assert applied("prepend", f"[ {USER},\n {SYSTEM} ]") == f"[{PROMPT}, {USER},\n {SYSTEM} ]"


def test_replace_takes_system_and_developer_messages_out() -> None:
    assert applied("replace", f"[{SYSTEM},{USER},{DEVELOPER},{USER}]") == f"[{PROMPT},{USER},{USER}]"
    assert applied("replace", f"[{SYSTEM}]") == f"[{PROMPT}]"
    assert applied("replace", f"[ {USER} ]") == f"[{PROMPT}, {USER} ]"


@pytest.mark.parametrize("own", [SYSTEM, DEVELOPER])
def test_if_absent_leaves_a_client_that_brings_its_own(own: str) -> None:
    messages = f"[ {USER}, {own}]"
    assert applied("if_absent", messages) == messages


def test_if_absent_helps_a_client_that_brings_none() -> None:
    assert applied("if_absent", f"[{USER}]") == f"[{PROMPT},{USER}]"


def test_preset_without_a_prompt_changes_nothing() -> None:
    messages = msgspec.Raw(f"[{USER}]".encode())
    assert apply_preset(Preset(), messages) is messages


roles = st.lists(st.sampled_from(["system", "developer", "user", "assistant", "tool"]), min_size=1)


@given(roles, st.sampled_from(["prepend", "replace", "if_absent"]))
def test_messages_come_out_as_the_page_says(sent: list[str], mode: str) -> None:
    messages = [{"role": role, "content": str(number)} for number, role in enumerate(sent)]
    own = [message for message in messages if message["role"] in ("system", "developer")]
    prompt = {"role": "system", "content": 'Be "kind" é'}
    expected = {
        "prepend": [prompt, *messages],
        "replace": [prompt, *(message for message in messages if message not in own)],
        "if_absent": messages if own else [prompt, *messages],
    }
    assert msgspec.json.decode(applied(mode, msgspec.json.encode(messages).decode())) == expected[mode]


def test_preset_becomes_the_instructions_of_a_responses_request() -> None:
    request = prompted(Preset(system_prompt="Be brief."), responses.parse_request(b'{"model":"m","input":"hi"}'))
    assert bytes(request.fields["instructions"]) == b'"Be brief."'
