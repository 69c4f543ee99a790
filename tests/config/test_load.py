"""From bytes and environment to a document: nothing raises, every fault has its place."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.config.load import Document, parse_document, read_document
from lumen_gateway.config.schema import Config, Fault

GOOD = """\
[server]
port = 9000

[[providers]]
name = "a"
kind = "openai"

[[providers.models]]
id = "m"
capabilities = ["chat"]
cost_per_1m_input = 0.1
"""


def parse(text: str | bytes, **environ: str) -> Document:
    return parse_document(Path("lumen.toml"), text.encode() if isinstance(text, str) else text, environ)


def said(document: Document) -> list[str]:
    return [document.locate(fault) for fault in sorted(document.faults, key=document.line)]


def test_good_document_has_a_config_and_no_faults() -> None:
    document = parse(GOOD)
    assert document.config is not None
    assert document.faults == ()
    assert document.config.server.port == 9000


def test_prices_are_exact() -> None:
    config = parse(GOOD).config
    assert config is not None
    assert str(config.models()[0][1].cost_per_1m_input) == "0.1"


def test_empty_document_is_valid() -> None:
    assert parse("").config == Config()


def test_fault_of_a_virtual_model_names_it_and_its_target() -> None:
    virtual = '[[virtual_models]]\nid = "v"\ncapability = "chat"\nstrategy = "single"\nlisted = 1\n'
    assert said(parse(GOOD + virtual + 'targets = [{ model = "m", weight = 0 }]')) == [
        'lumen.toml:16: virtual_models[0].listed: virtual model "v": expected true or false, got an integer; write '
        "true or false",
        'lumen.toml:17: virtual_models[0].targets[0].weight: virtual model "v", target "m": is out of range; write an '
        "integer from 1 to 4294967295",
    ]


def test_faults_are_placed_by_line_and_path() -> None:
    text = GOOD.replace("9000", "0").replace('"chat"', '"chta"')
    assert said(parse(text)) == [
        "lumen.toml:2: server.port: is out of range; write an integer from 1 to 65535",
        'lumen.toml:10: providers[0].models[0].capabilities[0]: "chta" is unknown; write "chat"',
    ]


def test_missing_key_is_placed_at_its_table() -> None:
    assert said(parse(GOOD.replace('name = "a"\n', ""))) == [
        'lumen.toml:4: providers[0].name: is missing; add it: name = "..."'
    ]


def test_fault_of_the_environment_names_the_variable() -> None:
    assert said(parse(GOOD, LUMEN_SERVR__PORT="0")) == ["LUMEN_SERVR__PORT: servr: is an unknown key; write server"]
    [of_the_file] = said(parse("[servr]\nhost = 'x'", LUMEN_SERVR__PORT="0"))
    assert of_the_file == "lumen.toml:1: servr: is an unknown key; write server"
    assert said(parse(GOOD, LUMEN_SERVER__PORT="0")) == [
        "LUMEN_SERVER__PORT: server.port: is out of range; write an integer from 1 to 65535"
    ]


def test_unknown_variable_is_a_warning_and_the_document_stays_good() -> None:
    document = parse(GOOD, LUMEN_SERVR="1")
    assert document.config is not None
    assert said(document) == [
        "LUMEN_SERVR: warning: is not a setting and is ignored; settings in tables are written like LUMEN_SERVER__PORT"
    ]


def test_environment_wins_over_the_document() -> None:
    config = parse(GOOD, LUMEN_SERVER__PORT="7000").config
    assert config is not None
    assert config.server.port == 7000


def test_environment_can_mend_the_document() -> None:
    assert parse(GOOD.replace("9000", "0"), LUMEN_SERVER__PORT="7000").config is not None


def test_later_faults_of_the_same_document_can_be_placed() -> None:
    document = parse(GOOD)
    assert document.locate(Fault(("providers", 0, "kind"), "no")) == "lumen.toml:6: providers[0].kind: no"
    assert document.locate(Fault((), "no")) == "lumen.toml: no"


def test_later_fault_takes_the_config_and_later_warning_does_not() -> None:
    document = parse(GOOD)
    assert document.with_faults([Fault(("server",), "no")]).config is None
    assert document.with_faults([Fault(("server",), "hm", warning=True)]).config == document.config


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b"a = \n", "lumen.toml:1: is not valid TOML"),
        (b"[server]\nport = 1\nport = 2\n", "lumen.toml:3: is not valid TOML"),
        (b'[server]\n\nhost = "abc', "lumen.toml:3: is not valid TOML"),
        (b"[server]\r\nport = 1\r\nhost\r\n", "lumen.toml:3: is not valid TOML"),
        (b"a = [\n1,\n\n", "lumen.toml:2: is not valid TOML"),
        (b'x = "\xff"\n', "lumen.toml:1: is not UTF-8; save it as UTF-8"),
        (b'a = 1\nb = "\xc3\x28"\n', "lumen.toml:2: is not UTF-8"),
        ("log_format = 'json'".encode("utf-16"), "lumen.toml:1: is not UTF-8"),
        (b"\x00\x01\x02", "lumen.toml:1: is not valid TOML"),
        (b"a = " + b"[" * 20_000, "lumen.toml: is nested too deeply"),
        (b"a = " + b"9" * 5_000, "lumen.toml: is not valid TOML"),
        (b"a = 1e99999999999999999999", "lumen.toml: is not valid TOML: a number is beyond any range"),
    ],
)
def test_what_is_no_toml_is_a_fault_with_its_line(raw: bytes, place: str) -> None:
    document = parse(raw)
    [line] = said(document)
    assert line.startswith(place)
    assert document.config is None
    assert document.draft is None


def test_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    document = parse(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert document.config is not None


def test_messages_hold_no_control_characters() -> None:
    document = parse('"\\u001b[31m" = 1\n[["a\\nb"]]\n[server]\nhost = 1')
    assert all(line.isprintable() for line in said(document))


@given(st.binary(max_size=60))
def test_no_bytes_raise(raw: bytes) -> None:
    document = parse(raw)
    assert (document.config is None) == bool(said(document))


@given(st.text(alphabet="[]{}=.,#\"'\\\n ab1-", max_size=40))
def test_no_text_raises(text: str) -> None:
    document = parse(text)
    assert (document.config is None) == bool(said(document))


def test_numbers_of_virtual_models_are_plain_floats() -> None:
    target = '{ model = "m", overrides = { set = { temperature = 0.1, stop = ["x"], logit = { a = [1.5, 2] } } } }'
    virtual = f'[[virtual_models]]\nid = "v"\ncapability = "chat"\nstrategy = "single"\ntargets = [{target}]'
    draft = parse(GOOD + virtual).draft
    assert draft is not None
    overrides = draft.virtual_models[0].targets[0].overrides
    assert overrides is not None
    assert repr(overrides.set) == "{'temperature': 0.1, 'stop': ['x'], 'logit': {'a': [1.5, 2]}}"


def test_lines_are_counted_alike_with_windows_line_ends() -> None:
    text = GOOD.replace("9000", "0")
    assert said(parse(text.replace("\n", "\r\n"))) == said(parse(text))


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_default_document_is_lumen_toml_before_config_toml(folder: Path) -> None:
    (folder / "config.toml").write_text("[server]\nport = 1\n")
    assert read_document(None, {}).path == Path("config.toml")
    (folder / "lumen.toml").write_text("[server]\nport = 2\n")
    document = read_document(None, {})
    assert document.path == Path("lumen.toml")
    assert document.config is not None
    assert document.config.server.port == 2


def test_missing_default_names_both(folder: Path) -> None:
    assert said(read_document(None, {})) == [
        "lumen.toml: not found, nor is config.toml; name the document with -c FILE"
    ]


def test_missing_file_is_named(folder: Path) -> None:
    [line] = said(read_document(Path("other.toml"), {}))
    assert line.startswith("other.toml: cannot be read: No such file or directory")


def test_directory_is_no_document(folder: Path) -> None:
    [line] = said(read_document(folder, {}))
    assert "Is a directory" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_named(folder: Path) -> None:
    (folder / "lumen.toml").touch(mode=0)
    [line] = said(read_document(None, {}))
    assert line.startswith("lumen.toml: cannot be read: Permission denied")


def test_ten_thousand_virtual_models_are_read_in_linear_time() -> None:
    def seconds(count: int) -> float:
        rest = 'capability = "chat"\nstrategy = "single"\ntargets = [{ model = "m" }]\n'
        models = "".join(f'[[virtual_models]]\nid = "v{n}"\n{rest}' for n in range(count))
        started = time.process_time()
        assert parse(GOOD + models).config is not None
        return time.process_time() - started

    seconds(10)
    few, many = seconds(1_000), seconds(10_000)
    assert many < 30 * few
