"""The shape of a document: every fault at once, each with the key it is about and what to write instead."""

from __future__ import annotations

import copy
import tomllib
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.config.check import check_shape, tables
from lumen_gateway.config.schema import Config

PROVIDER = '[[providers]]\nname = "a"\nkind = "openai"\n'
MODEL = PROVIDER + '[[providers.models]]\nid = "m"\ncapabilities = ["chat"]\n'
VIRTUAL = '[[virtual_models]]\nid = "v"\ncapability = "chat"\nstrategy = "single"\ntargets = [{ model = "m" }]\n'


def parsed(text: str) -> dict[str, Any]:
    return tomllib.loads(text, parse_float=Decimal)


def faults(text: str) -> list[tuple[str, str, str]]:
    """Say each fault as (path, message, fix)."""
    return [(".".join(map(str, fault.path)), fault.message, fault.fix) for fault in check_shape(parsed(text))]


def test_empty_document_is_right() -> None:
    assert faults("") == []


@pytest.mark.parametrize(
    ("text", "path", "message", "fix"),
    [
        ("[server]\nprt = 1", "server.prt", "is an unknown key", "write port"),
        (
            "[server]\nworkers_of_the_day = 1",
            "server.workers_of_the_day",
            "is an unknown key",
            "known here: host, port",
        ),
        ("[server]\nlog_format = 'json'", "server.log_format", "is an unknown key", "move it to the top"),
        ("body_limit = 1", "body_limit", "is an unknown key", "it belongs in [server]"),
        ("[server]\nretry_base_ms = 1", "server.retry_base_ms", "is an unknown key", "it belongs in [resilience]"),
        ("provider = []", "provider", "is an unknown key", "write providers"),
        ("[server]\nport = '8080'", "server.port", "expected an integer, got a string", "write it without quotes"),
        ("[server]\nport = 'http'", "server.port", "expected an integer, got a string", "write an integer"),
        ("[server]\nport = true", "server.port", "expected an integer, got a boolean", "write an integer"),
        ("[server]\nport = 80.0", "server.port", "expected an integer, got a float", "write an integer"),
        ("[server]\nport = 2020-01-01", "server.port", "expected an integer, got a date", "write an integer"),
        ("[server]\nearly_headers = 1", "server.early_headers", "expected true or false, got an integer", "write true"),
        ("[server]\nearly_headers = 'true'", "server.early_headers", "expected true or false", "without quotes"),
        ("[server]\nhost = 10", "server.host", "expected a string, got an integer", "put it in quotes"),
        ("[server]\nhost = {}", "server.host", "expected a string, got a table", "write a string"),
        ("log_format = 07:32:00", "log_format", "expected a string, got a time", "put it in quotes"),
        ("server = 1", "server", "expected a table, got an integer", "write a table"),
        ("[providers]\nname = 'a'", "providers", "expected an array of tables, got a table", "write [[providers]]"),
        (PROVIDER + "models = 'm'", "providers.0.models", "expected an array of tables, got a string", "put it in [ ]"),
        (PROVIDER + "models = ['m']", "providers.0.models.0", "expected a table, got a string", "write a table"),
        ("[server]\nport = 0", "server.port", "is out of range", "write an integer from 1 to 65535"),
        ("[server]\nport = 65536", "server.port", "is out of range", "write an integer from 1 to 65535"),
        ("[server]\nbody_limit = -1", "server.body_limit", "is out of range", "write an integer of at least 1"),
        ("[server]\nbody_limit = 9223372036854775808", "server.body_limit", "is out of range", "9223372036854775807"),
        (MODEL + "cost_per_1m_input = -0.5", "providers.0.models.0.cost_per_1m_input", "is out of range", "at least 0"),
        (MODEL + "cost_per_1m_input = -1", "providers.0.models.0.cost_per_1m_input", "is out of range", "at least 0"),
        (MODEL + "cost_per_1m_input = nan", "providers.0.models.0.cost_per_1m_input", "is out of range", "finite"),
        (MODEL + "cost_per_1m_input = inf", "providers.0.models.0.cost_per_1m_input", "is out of range", "finite"),
        (MODEL + "cost_per_1m_input = '1'", "providers.0.models.0.cost_per_1m_input", "expected a number", "quotes"),
        ("[server]\nhost = '  '", "server.host", "is blank", "write something"),
        ("log_format = 'jsno'", "log_format", '"jsno" is unknown', 'write "json"'),
        ("log_format = 'xml'", "log_format", '"xml" is unknown', 'write one of "json", "pretty"'),
        (MODEL.replace('"m"', '"my model"'), "providers.0.models.0.id", '"my model" is not allowed', ". _ : / -"),
        (MODEL.replace('"m"', '"m\\n"'), "providers.0.models.0.id", '"m\\u000a" is not allowed', "only letters"),
        (MODEL.replace('["chat"]', "[]"), "providers.0.models.0.capabilities", "is empty", 'capabilities = ["chat"]'),
        (MODEL + "release_date = 'may'", "providers.0.models.0.release_date", '"may" is not allowed', "a date such as"),
        (PROVIDER.replace("name", "#"), "providers.0.name", "is missing", 'add it: name = "..."'),
        (VIRTUAL.replace("capability", "#"), "virtual_models.0.capability", "is missing", 'capability = "chat"'),
        (VIRTUAL.replace("targets", "#"), "virtual_models.0.targets", "is missing", "targets = [{ model"),
    ],
)
def test_fault_names_the_key_and_the_fix(text: str, path: str, message: str, fix: str) -> None:
    [(where, said, advice)] = faults(text)
    assert where == path
    assert message in said
    assert fix in advice


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[auth]\nenabled = true", "auth.enabled"),
        ("[storage]\nurl = 'x'", "storage"),
        ("[[agents]]\nid = 'x'", "agents"),
        ("[server]\nadmin_host = 'x'", "server.admin_host"),
        ("[tokenizer]\nmode = 'accurate'", "tokenizer.mode"),
        ("config_source = 'db'", "config_source"),
        ("prices = 'auto'", "prices"),
        (PROVIDER.replace("openai", "bedrock"), "providers.0.kind"),
        (MODEL.replace('"chat"', '"chat", "embed"'), "providers.0.models.0.capabilities.1"),
        (MODEL + "apis = ['chat', 'converse']", "providers.0.models.0.apis.1"),
        (VIRTUAL.replace("chat", "systemone"), "virtual_models.0.capability"),
        (VIRTUAL.replace('"m"', '"m", remap = {}'), "virtual_models.0.targets.0.remap"),
    ],
)
def test_what_is_not_built_is_refused_by_name(text: str, path: str) -> None:
    [(where, said, _)] = faults(text)
    assert where == path
    assert said.endswith("is not in this version")


def test_no_word_that_would_be_refused_next_is_proposed() -> None:
    assert faults("config_source = 'redis'") == [("config_source", '"redis" is unknown', 'write "file"')]
    assert faults("[tokenizer]\nmode = 'exact'") == [("tokenizer.mode", '"exact" is unknown', 'write "heuristic"')]


def test_list_of_apis_names_one() -> None:
    assert faults(MODEL + "apis = []") == [("providers.0.models.0.apis", "is empty", 'write apis = ["chat"]')]


def test_what_belongs_to_auth_is_not_held_against_a_document_without_it() -> None:
    zeros = ("flush_interval_ms", "retention_days", "usage_channel_capacity", "usage_batch_max", "usage_flush_ms")
    assert faults("[auth]\ndb_path = ''\n" + "".join(f"{name} = 0\n" for name in zeros)) == []


def test_unbuilt_field_at_its_default_is_accepted() -> None:
    assert faults("[auth]\nenabled = false\n[resilience]\nhealth_check_enabled = false") == []


def test_unbuilt_flag_written_as_a_number_is_not_taken_for_its_default() -> None:
    assert faults("[auth]\nenabled = 0") != []


def test_every_fault_is_reported_at_once() -> None:
    text = "log_format = 'x'\n[server]\nport = 0\nfoo = 1\n" + PROVIDER.replace("openai", "opnai") + VIRTUAL
    assert {path for path, *_ in faults(text)} == {"log_format", "server.port", "server.foo", "providers.0.kind"}


def test_values_that_may_be_secrets_are_not_repeated() -> None:
    text = "[server]\nport = 'hunter2'\n" + PROVIDER + "api_key = 'hunter2'\napi_key_env = ['hunter2']"
    said = faults(text)
    assert len(said) == 3
    assert "hunter2" not in str(said)


def test_every_table_is_known_by_its_header() -> None:
    assert {"", "[server]", "[[providers]]", "[[providers.models]]", "[virtual_models.preset]"} <= set(tables())


# --- the walk and msgspec agree ---------------------------------------------------------------------------------------

WHOLE = parsed(
    """
    log_format = "json"
    [server]
    port = 1
    host = "h"
    early_headers = false
    [[providers]]
    name = "a"
    kind = "azure"
    keys = [{ label = "k", api_key_env = "K", weight = 2 }]
    forward_headers = ["x"]
    [[providers.models]]
    id = "m"
    capabilities = ["chat"]
    apis = ["chat"]
    cost_per_1m_input = 1.5
    cost_per_1m_output = 2
    release_date = "2025-01-31"
    [[virtual_models]]
    id = "v"
    capability = "chat"
    strategy = "split"
    targets = [{ model = "m", weight = 1, when = {}, overrides = { set = { n = 1 }, drop = ["x"] } }]
    fallback_on = ["timeout"]
    preset = { system_prompt = "p", overrides = { default = {} } }
    """
)

junk = st.one_of(
    st.none().map(lambda _: {}),
    st.booleans(),
    st.integers(),
    st.decimals(),
    st.text(max_size=5),
    st.sampled_from(["chat", "openai", "json", "any_error", "2025-01-31"]),
    st.dates(),
    st.lists(st.one_of(st.text(max_size=3), st.integers(), st.just({})), max_size=2),
    st.dictionaries(st.sampled_from(["id", "model", "name", "set", "x"]), st.text(max_size=3), max_size=2),
)


def paths_in(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in items for inner in paths_in(item, (*path, key)))]


@st.composite
def mutated_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Return a whole document with a few values replaced, removed or added."""
    document = copy.deepcopy(WHOLE)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([path for path in paths_in(document) if path]))
        holder: Any = document
        for step in way:
            holder = holder[step]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                holder[last] = draw(junk)
            case "remove":
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder[draw(st.sampled_from(["id", "weight", "description", "stream", "key", "commit"]))] = draw(junk)
    return document


def converts(document: dict[str, Any]) -> bool:
    try:
        msgspec.convert(document, Config, builtin_types=(Decimal,))
    except msgspec.ValidationError:
        return False
    return True


@given(mutated_documents())
def test_document_without_faults_converts_and_one_that_does_not_has_faults(document: dict[str, Any]) -> None:
    found = check_shape(document)
    assert found or converts(document)
    stricter = ("is not in this version", "is out of range")
    assert not found or not converts(document) or all(fault.message.endswith(stricter) for fault in found)
