"""The master key: 64 hexadecimal characters, or what is wrong with it, and never the key itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumen_gateway.config.load import Document, parse_document
from lumen_gateway.config.master_key import read_master_key
from lumen_gateway.redact import Secret

GOOD = "0123456789abcdefABCDEF" + "0" * 42
PLACEHOLDER = "holds a placeholder that nothing has filled in"
NO_KEY = "is not 64 hexadecimal characters"
WRONG = [
    ("${LUMEN_MASTER_KEY}", PLACEHOLDER),
    ("$LUMEN_MASTER_KEY", PLACEHOLDER),
    ("{{ .Values.masterKey }}", PLACEHOLDER),
    ("<your key here>", PLACEHOLDER),
    ("$(openssl rand -hex 32)", PLACEHOLDER),
    (GOOD[:-1], NO_KEY),
    (GOOD + "0", NO_KEY),
    ("g" * 64, NO_KEY),
    ("0x" + "0" * 62, NO_KEY),
    ("\u0660" * 64, NO_KEY),
]


def read(text: str, **environ: str) -> Document:
    return parse_document(Path("lumen.toml"), text.encode(), environ)


def said(document: Document) -> list[str]:
    return [document.locate(fault) for fault in document.faults if "MASTER_KEY" in document.locate(fault)]


@pytest.mark.parametrize("value", [GOOD, f" {GOOD}\n"])
def test_key_is_read(value: str) -> None:
    assert read_master_key({"LUMEN_MASTER_KEY": value}) == Secret(GOOD)


@pytest.mark.parametrize("value", [None, "", *(value for value, _ in WRONG)])
def test_what_is_no_key_guards_nothing(value: str | None) -> None:
    assert read_master_key({} if value is None else {"LUMEN_MASTER_KEY": value}) is None


@pytest.mark.parametrize(("value", "wrong"), WRONG)
def test_wrong_key_is_fatal_where_it_is_needed(value: str, wrong: str) -> None:
    document = read("[auth]\nenabled = true\n", LUMEN_MASTER_KEY=value)
    assert document.config is None
    (line,) = said(document)
    assert line.startswith(f"lumen.toml:2: auth.enabled: needs LUMEN_MASTER_KEY in the environment, which {wrong}; ")
    assert value not in line


def test_missing_key_is_told_with_how_to_make_one() -> None:
    (line,) = said(read("[auth]\nenabled = true\n"))
    assert line.endswith("which is not set; set it to 64 hexadecimal characters: openssl rand -hex 32")


def test_setting_from_the_environment_needs_the_key_too() -> None:
    (line,) = said(read("", LUMEN_AUTH__ENABLED="true"))
    assert line.startswith("LUMEN_AUTH__ENABLED: auth.enabled: needs LUMEN_MASTER_KEY")


@pytest.mark.parametrize(("value", "wrong"), WRONG)
def test_wrong_key_is_worth_a_warning_where_it_is_not_needed(value: str, wrong: str) -> None:
    document = read("", LUMEN_MASTER_KEY=value)
    assert document.config is not None
    (line,) = said(document)
    assert line.startswith(f"LUMEN_MASTER_KEY: warning: {wrong}; it opens nothing; ")
    assert value not in line


@pytest.mark.parametrize("environ", [{}, {"LUMEN_MASTER_KEY": GOOD}, {"LUMEN_MASTER_KEY": ""}])
def test_nothing_is_said_of_a_key_that_is_right_or_not_there(environ: dict[str, str]) -> None:
    assert read("", **environ).faults == ()
