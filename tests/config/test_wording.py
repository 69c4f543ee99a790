"""What faults print is short and safe for a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.config.wording import dotted, nearest, one_of, owner, quoted


def test_path_is_written_the_way_operators_say_it() -> None:
    assert dotted(("virtual_models", 0, "targets", 1, "model")) == "virtual_models[0].targets[1].model"
    assert dotted(("when", "metadata.plan")) == 'when."metadata.plan"'
    assert dotted(()) == ""


def test_owner_of_a_path_is_the_virtual_model_and_its_target_by_their_ids() -> None:
    document = {"virtual_models": [{"id": "v", "targets": [{"model": "m"}, {"model": 1}, 2]}, 3, {"targets": []}]}
    assert owner(document, ("virtual_models", 0, "targets", 0, "when", "stream")) == 'virtual model "v", target "m"'
    assert owner(document, ("virtual_models", 0, "targets", 0)) == 'virtual model "v", target "m"'
    inside: list[tuple[str | int, ...]] = [("targets",), ("targets", 1), ("targets", 2), ("id",)]
    for path in inside:
        assert owner(document, ("virtual_models", 0, *path)) == 'virtual model "v"'
    outside: list[tuple[str | int, ...]] = [(), ("server", "port"), ("virtual_models",), ("virtual_models", 1)]
    for path in outside:
        assert owner(document, path) == ""
    assert owner({}, ("virtual_models", "0")) == ""


def test_words_are_quoted_and_cut() -> None:
    assert quoted('a"b\\c') == '"a\\"b\\\\c"'
    assert quoted("\x1b[31m\n") == '"\\u001b[31m\\u000a"'
    assert quoted("\u202eabc") == '"\\u202eabc"'
    assert quoted("\U000e0001") == '"\\U000e0001"'
    assert quoted("é") == '"é"'
    assert quoted("x" * 100) == '"' + "x" * 77 + '..."'


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_quoted_text_can_always_be_printed(text: str) -> None:
    assert quoted(text).isprintable()
    quoted(text).encode()


def test_choices_are_listed() -> None:
    assert one_of(["a"]) == '"a"'
    assert one_of(["a", "b"]) == 'one of "a", "b"'


def test_near_miss_is_found_whatever_its_case() -> None:
    assert nearest("OpenAI", ["openai", "azure"]) == "openai"
    assert nearest("prot", ["host", "port"]) == "port"
    assert nearest("zzz", ["host", "port"]) is None
