"""Settings from the environment."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.config.overlay import overlay, parse_value


def laid_over(document: dict[str, Any], **environ: str) -> dict[str, Any]:
    _, faults = overlay(document, environ)
    assert faults == []
    return document


def test_variable_overrides_the_document_and_leaves_the_rest() -> None:
    document = {"server": {"port": 1, "host": "h"}}
    assert laid_over(document, LUMEN_SERVER__PORT="9090") == {"server": {"port": 9090, "host": "h"}}


def test_variable_creates_the_table_it_needs() -> None:
    assert laid_over({}, LUMEN_SERVER__PORT="9090") == {"server": {"port": 9090}}


def test_top_level_value_needs_no_separator_and_case_does_not_matter() -> None:
    assert laid_over({}, lumen_Log_Format="json") == {"log_format": "json"}


def test_variables_of_the_process_and_of_others_are_left_alone() -> None:
    foreign = {
        "LUMEN_MASTER_KEY": "k",
        "LUMEN_LOG": "DEBUG",
        "LUMEN_WEBHOOK_ALLOWED_HOSTS": "h",
        "PATH": "/",
        "LUMENS": "1",
        "X_LUMEN_A__B": "1",
    }
    assert laid_over({}, **foreign) == {}


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("LUMEN_LOG_FORMT", "write LUMEN_LOG_FORMAT"),
        ("LUMEN_HOME", "settings in tables are written like LUMEN_SERVER__PORT"),
        ("LUMEN_SERVER", "settings in tables are written like LUMEN_SERVER__PORT"),
        ("LUMEN_", "settings in tables are written like LUMEN_SERVER__PORT"),
    ],
)
def test_other_name_with_the_prefix_is_a_warning(name: str, fix: str) -> None:
    document: dict[str, Any] = {}
    variables, [fault] = overlay(document, {name: "x"})
    assert document == {}
    assert fault.warning
    assert fault.fix == fix
    assert variables[fault.path] == name


@pytest.mark.parametrize("above", [[{"name": "a"}], "x", 1])
def test_what_is_no_table_cannot_be_reached_into(above: object) -> None:
    document = {"providers": above}
    _, [fault] = overlay(document, {"LUMEN_PROVIDERS__0__NAME": "b"})
    assert document == {"providers": above}
    assert fault.message == "nothing below providers can be set from the environment"
    assert not fault.warning


def test_every_setting_is_remembered_with_its_variable() -> None:
    variables, _ = overlay({}, {"lumen_server__port": "1", "LUMEN_PRICES": "config"})
    assert variables == {("server", "port"): "lumen_server__port", ("prices",): "LUMEN_PRICES"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9090", 9090),
        ("true", True),
        ("1.50", Decimal("1.50")),
        ("'quoted'", "quoted"),
        ('["a", "b"]', ["a", "b"]),
        ("[]", []),
        ("json", "json"),
        ("", ""),
        ("127.0.0.1", "127.0.0.1"),
        ("https://example.com/v1", "https://example.com/v1"),
        ("2025-01-31", "2025-01-31"),
        ("{ a = 1 }", "{ a = 1 }"),
        ("1\nother = 2", "1\nother = 2"),
        ("True", "True"),
        ("1e99999999999999999999", "1e99999999999999999999"),
        ("[" * 5000, "[" * 5000),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_value_is_a_scalar_or_an_array_where_it_reads_as_one(text: str, value: object) -> None:
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=20))
def test_no_value_raises(text: str) -> None:
    parse_value(text)
