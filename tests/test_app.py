"""Wiring: what a document becomes for those who serve it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lumen_gateway.app import composer, prepare, worker_command
from lumen_gateway.config.load import parse_document
from lumen_gateway.control import Load
from lumen_gateway.execution.breaker import Breaker, BreakerPolicy
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.gateway import Gateway

TEXT = """
[[providers]]
name = "p"
kind = "vllm"
base_url = "http://upstream.test:8000/v1"
api_key_env = "KEY"
forward_headers = ["X-Team"]
first_token_timeout_ms = 1500

[[providers.models]]
id = "m"
upstream_id = "the-model"
capabilities = ["chat"]

[[virtual_models]]
id = "v"
capability = "chat"
strategy = "single"
targets = [{ model = "m" }]
"""
ENVIRON = {"KEY": "sk-canary", "OTHER": "kept out"}


def prepared(text: str = TEXT, environ: Mapping[str, str] = ENVIRON) -> Load:
    load, faults = prepare(parse_document(Path("lumen.toml"), text.encode(), {}), environ)
    assert faults == []
    assert load is not None
    return load


def composed(load: Load, running: Gateway | None = None) -> Gateway:
    slices = composer("/keeper.sock")(load, running)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            gateway: Gateway = done.value
            return gateway


def test_document_takes_along_the_keys_it_names_and_no_others() -> None:
    assert prepared().secrets == {"KEY": "sk-canary"}
    assert prepared(environ={"KEY": ""}).secrets == {}


def test_white_space_around_a_key_is_not_part_of_it() -> None:
    assert prepared(environ={"KEY": " sk-canary\r\n"}).secrets == {"KEY": "sk-canary"}
    assert prepared(environ={"KEY": " \n"}).secrets == {}


@pytest.mark.parametrize("value", ["sk-canary\r\nx-evil: 1", "sk-canary\nsk", "sk\x00canary", "canary\udcff"])
async def test_key_that_no_header_takes_is_told_and_not_used(value: str) -> None:
    load, (fault,) = prepare(parse_document(Path("lumen.toml"), TEXT.encode(), {}), {"KEY": value})
    assert fault.startswith("KEY: warning: ")
    assert "canary" not in fault
    assert load is not None
    assert load.secrets == {"KEY": ""}, "its name stays: no worker inherits the variable"
    (key,) = composed(load).snapshot.leaves["m"].credentials
    assert key.headers.reveal() == b""


def test_hash_is_of_the_text() -> None:
    assert prepared().hash == prepared(environ={}).hash != prepared(TEXT + "\n").hash


def test_document_that_leads_nowhere_is_no_load_and_says_where() -> None:
    document = parse_document(Path("lumen.toml"), TEXT.replace('model = "m"', 'model = "n"').encode(), {})
    load, (fault,) = prepare(document, {})
    assert load is None
    assert fault.startswith("lumen.toml:19: virtual_models[0].targets[0].model: ")


async def test_leaf_that_streams_at_another_address_knows_both() -> None:
    text = TEXT.replace('"vllm"', '"google"').replace(":8000/v1", ":8000")
    leaf = composed(prepared(text)).snapshot.leaves["m"]
    path = b"POST /v1beta/models/the-model:"
    assert leaf.head("gemini", stream=False).startswith(path + b"generateContent HTTP/1.1\r\n")
    assert leaf.head("gemini", stream=True).startswith(path + b"streamGenerateContent?alt=sse HTTP/1.1\r\n")
    assert [key.headers.reveal() for key in leaf.credentials] == [b"x-goog-api-key: sk-canary\r\n"]


async def test_leaf_holds_all_that_is_known_before_a_request_comes() -> None:
    snapshot = composed(prepared()).snapshot
    leaf = snapshot.leaves["m"]
    assert (leaf.origin.host, leaf.origin.port) == ("upstream.test", 8000)
    assert leaf.heads["chat"].startswith(b"POST /v1/chat/completions HTTP/1.1\r\nhost: upstream.test:8000\r\n")
    assert bytes(leaf.model) == b'"the-model"'
    assert [key.headers.reveal() for key in leaf.credentials] == [b"authorization: Bearer sk-canary\r\n"]
    assert (leaf.timeouts.first_token_s, leaf.timeouts.total_s) == (1.5, 600.0)
    assert {b"x-team", b"traceparent"} <= leaf.forward_headers
    assert "sk-canary" not in repr(snapshot)


async def test_key_that_is_not_set_is_left_out() -> None:
    (key,) = composed(prepared(environ={})).snapshot.leaves["m"].credentials
    assert key.headers.reveal() == b""


async def test_models_are_listed_whole_and_one_by_one() -> None:
    snapshot = composed(prepared()).snapshot
    listing = json.loads(snapshot.models)
    assert listing["object"] == "list"
    assert [entry["id"] for entry in listing["data"]] == ["m", "v"]
    assert [json.loads(snapshot.model[name]) for name in ("m", "v")] == listing["data"]


async def test_document_is_swapped_whole_into_the_gateway_that_runs() -> None:
    gateway = composed(prepared())
    before = gateway.snapshot
    changed = "[resilience]\nretry_max_attempts = 1\ncircuit_failure_threshold = 2\n" + TEXT.replace('"v"', '"w"')
    assert composed(prepared(changed), gateway) is gateway
    assert gateway.snapshot.plan.find("v") is None
    assert gateway.snapshot.retry == RetryPolicy(max_tries=1)
    assert gateway.snapshot.breaker == BreakerPolicy(threshold=2)
    assert before.plan.find("w") is None
    assert before.plan.find("v") is not None
    assert (before.retry, before.breaker) == (RetryPolicy(), BreakerPolicy())


async def test_breakers_outlive_a_reload_as_long_as_their_model() -> None:
    gateway = composed(prepared())
    breaker = gateway.executor.breakers["p", None, "m"] = Breaker()
    composed(prepared(TEXT + "# new"), gateway)
    assert gateway.executor.breakers == {("p", None, "m"): breaker}
    composed(prepared("# nothing left"), gateway)
    assert gateway.executor.breakers == {}


def test_worker_is_started_by_the_same_interpreter_with_nothing_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMEN_LOG", "debug")
    command = worker_command(prepared())
    assert command == [sys.executable, "-m", "lumen_gateway.app", "pretty", "DEBUG"]
    monkeypatch.setenv("LUMEN_LOG", "")
    assert worker_command(prepared())[-1] == "INFO"
