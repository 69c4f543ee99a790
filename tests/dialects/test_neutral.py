"""The form between dialects: values that can be compared, passed around and not changed."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.neutral import NO_RAW, Delta, Part, Raw, Text, Turn

STRUCTS = [kind for _, kind in inspect.getmembers(neutral, inspect.isclass) if issubclass(kind, msgspec.Struct)]
PARTS = [kind for kind in STRUCTS if issubclass(kind, Part) and kind is not Part]
DELTAS = [kind for kind in STRUCTS if issubclass(kind, Delta) and kind is not Delta]


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_nothing_in_it_changes_once_it_is_said(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize("kinds", [PARTS, DELTAS], ids=["parts", "deltas"])
def test_each_kind_is_told_by_a_name_of_its_own(kinds: list[type[msgspec.Struct]]) -> None:
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert tags == [kind.__name__.lower() for kind in kinds]
    assert {kind.__struct_config__.tag_field for kind in kinds} == {"kind"}


def test_what_says_the_same_is_equal() -> None:
    assert Turn("user", [Text(text="a")]) == Turn("user", [Text(text="a", cache=NO_RAW)])
    assert Turn("user", [Text(text="a")]) != Turn("user", [Text(text="a", cache=Raw(b'{"type":"ephemeral"}'))])


def test_an_unset_cache_marker_is_json_null_and_so_is_one_written_as_null() -> None:
    assert Raw(b"null") == NO_RAW
    assert msgspec.json.decode(msgspec.json.encode(NO_RAW)) is None


def test_a_request_asks_for_nothing_it_was_not_told_to() -> None:
    request = neutral.Request(turns=[])
    unset = {name: getattr(request, name) for name in request.__struct_fields__}
    assert not any(unset.values())
