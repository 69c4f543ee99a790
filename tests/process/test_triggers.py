"""Every failure of an upstream leads on where its trigger is listed and only there, streamed and unstreamed alike.

One running gateway; each case has leaves of its own, so that no breaker and no cool-down reaches from one to another.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from typing import Literal, NamedTuple, get_args

import msgspec
import pytest
import pytest_asyncio
from tests.process.program import HOST, Program

from lumen_gateway.config.schema import Resilience, TriggerName
from lumen_gateway.simulator import Reply, Upstream, auto, completion, error, stream
from lumen_gateway.simulator.reply import STREAM_HEADERS

pytestmark = pytest.mark.asyncio(loop_scope="module")

Mode = Literal["whole", "streamed"]
Listing = Literal["on", "any", "off"]
TRIGGERS = tuple(trigger for trigger in get_args(TriggerName) if trigger != "any_error")


class Fault(NamedTuple):
    """What an upstream does, which triggers it matches, and what the client gets where none of them is listed."""

    name: str
    whole: Reply
    streamed: Reply
    triggers: tuple[str, ...]
    status: int
    code: str
    provider: str = "sim"
    code_streamed: str | None = None  # where it differs


def refusal(name: str, reply: Reply, triggers: tuple[str, ...], status: int, code: str) -> Fault:
    """A fault that looks the same whether a stream was asked for or not."""
    return Fault(name, reply, reply, triggers, status, code)


SILENCE = Reply(stop="hang", stop_after_bytes=0)
RESET = Reply(stop="reset", stop_after_bytes=9)  # inside the status line; a reset before it may be sent again
PAGE = Reply(headers=(("content-type", "text/html"),), body=b"<html>Welcome to nginx!</html>")
CUT = msgspec.structs.replace(completion("Hello there"), stop="end", stop_after_bytes=150)
FAILED_200 = Reply(headers=(("content-type", "application/json"),), body=b'{"error":{"message":"no","code":500}}')
ERROR_FRAME = Reply(headers=STREAM_HEADERS, frames=(b'data: {"error":{"message":"no","code":500}}\n\n',))
NO_TERMINATOR = stream([], done=False)

FAULTS = (
    refusal("status-500", error(500), ("provider_error",), 502, "LM-3003"),
    refusal("status-529", error(529), ("provider_error",), 502, "LM-3003"),
    refusal("reset", RESET, ("provider_error",), 503, "LM-3004"),
    Fault("refused-port", RESET, RESET, ("provider_error",), 503, "LM-3004", "closed"),
    Fault("cut", CUT, stream([], done=False, stop="end"), ("provider_error",), 502, "LM-3010"),
    Fault("ended", CUT, NO_TERMINATOR, ("provider_error",), 502, "LM-3010"),
    Fault("error-in-a-200", FAILED_200, ERROR_FRAME, ("provider_error",), 502, "LM-3003"),
    refusal("status-429", error(429), ("rate_limited",), 429, "LM-3001"),
    Fault("silence", SILENCE, SILENCE, ("timeout",), 504, "LM-3005", "impatient", "LM-3011"),
    refusal("status-408", error(408), ("timeout",), 504, "LM-3005"),
    refusal("context", error(400, "context_length_exceeded"), ("context_length",), 400, "LM-2012"),
    refusal("policy", error(400, "content_filter"), ("content_filter",), 400, "LM-2013"),
    refusal("status-401", error(401, "invalid_api_key"), ("auth_error",), 502, "LM-3003"),
    refusal("status-403", error(403), ("auth_error",), 502, "LM-3003"),
    refusal("status-402", error(402), ("quota_exhausted",), 502, "LM-3003"),
    refusal("quota-429", error(429, "insufficient_quota"), ("rate_limited", "quota_exhausted"), 429, "LM-3001"),
    refusal("status-404", error(404, "model_not_found"), ("not_found",), 502, "LM-3003"),
    refusal("page", PAGE, ("malformed",), 502, "LM-3002"),
    refusal("status-422", error(422), (), 502, "LM-3003"),
)
EMPTY = Fault("empty", completion(""), stream([]), ("empty_answer",), 200, "")
"""No failure at all, unless somebody lists it."""


def leaf_of(listing: Listing, fault: Fault, mode: Mode) -> str:
    return f"{fault.name}/{listing}/{mode}"


def listed(listing: Listing, fault: Fault) -> list[str]:
    """What `fallback_on` holds: the last of the fault's own triggers, everything, or everything else."""
    if listing == "any":
        return ["any_error"]
    if listing == "on":
        return [fault.triggers[-1]] if fault.triggers else ["any_error"]
    return [trigger for trigger in TRIGGERS if trigger not in fault.triggers]


CASES: list[tuple[Listing, Fault, Mode]] = [
    (listing, fault, mode) for listing in get_args(Listing) for fault in (*FAULTS, EMPTY) for mode in get_args(Mode)
]


def tripping(mode: Mode) -> str:
    """A leaf whose breaker is tripped."""
    return f"tripping/{mode}"


def document(url: str, refused_port: int) -> str:
    providers = {"sim": url, "impatient": url, "closed": f"http://{HOST}:{refused_port}"}
    lines = ["resilience = { retry_max_attempts = 1 }"]
    for name, address in providers.items():
        lines += ["[[providers]]", f'name = "{name}"', 'kind = "openai"', f'base_url = "{address}/v1"']
        if name == "impatient":
            lines += ["first_token_timeout_ms = 150", "response_timeout_ms = 150"]
        leaves = [leaf_of(*case) for case in CASES if case[1].provider == name]
        if name == "sim":
            leaves += ["good", *map(tripping, get_args(Mode))]
        models = [f'{{ id = "{leaf}", capabilities = ["chat"] }}' for leaf in leaves]
        lines.append(f"models = [{', '.join(models)}]")
    chains = [(leaf_of(*case), listed(case[0], case[1])) for case in CASES]
    chains += [(tripping(mode), ["circuit_open"]) for mode in get_args(Mode)]
    for leaf, triggers in chains:
        lines += ["[[virtual_models]]", f'id = "v/{leaf}"', 'capability = "chat"', 'strategy = "fallback"']
        lines += [f'targets = [{{ model = "{leaf}" }}, {{ model = "good" }}]', f"fallback_on = {triggers}"]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def refused_port() -> Iterator[int]:
    """A port where nobody listens, kept so."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    script = {leaf_of(*case): case[1].streamed if case[2] == "streamed" else case[1].whole for case in CASES}
    script |= dict.fromkeys(map(tripping, get_args(Mode)), error(500))
    async with Upstream({**script, "good": auto("I am good")}) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    upstream: Upstream, refused_port: int, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Program]:
    async with Program(tmp_path_factory.mktemp("triggers"), document(upstream.url, refused_port)) as running:
        yield running


def called(upstream: Upstream, leaf: str) -> int:
    return sum(call.field("model") == leaf for call in upstream.calls)


def reachable(fault: Fault) -> int:
    return 0 if fault.provider == "closed" else 1


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("listing", ["on", "any"])
@pytest.mark.parametrize("fault", [*FAULTS, EMPTY], ids=lambda fault: fault.name)
async def test_failure_leads_on_where_it_is_listed(
    gateway: Program, upstream: Upstream, fault: Fault, listing: Listing, mode: Mode
) -> None:
    leaf, good_calls = leaf_of(listing, fault, mode), called(upstream, "good")
    answer = await gateway.ask(f"v/{leaf}", stream=mode == "streamed")
    assert (answer.status, answer.text, answer.done) == (200, "I am good", True)
    assert (answer.route, answer.served_by) == (f"v/{leaf}>good", "good")
    assert answer.headers["x-lumen-fallback-from"] == leaf
    assert answer.headers["x-lumen-fallback-index"] == "0"
    assert called(upstream, leaf) == reachable(fault)
    assert called(upstream, "good") == good_calls + 1


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_failure_is_the_answer_where_everything_else_is_listed(
    gateway: Program, upstream: Upstream, fault: Fault, mode: Mode
) -> None:
    leaf, good_calls = leaf_of("off", fault, mode), called(upstream, "good")
    code = fault.code if mode == "whole" else fault.code_streamed or fault.code
    answer = await gateway.ask(f"v/{leaf}", stream=mode == "streamed")
    assert (answer.status, answer.error["code"]) == (fault.status, code)
    assert "x-lumen-fallback-exhausted" not in answer.headers
    assert called(upstream, leaf) == reachable(fault)
    assert called(upstream, "good") == good_calls


@pytest.mark.parametrize("mode", get_args(Mode))
async def test_empty_answer_is_an_answer_where_it_is_not_listed(gateway: Program, mode: Mode) -> None:
    leaf = leaf_of("off", EMPTY, mode)
    answer = await gateway.ask(f"v/{leaf}", stream=mode == "streamed")
    assert (answer.status, answer.text, answer.done, answer.served_by) == (200, "", True, leaf)


@pytest.mark.parametrize("mode", get_args(Mode))
async def test_open_breaker_leads_on_without_a_call(gateway: Program, upstream: Upstream, mode: Mode) -> None:
    leaf, threshold = tripping(mode), Resilience().circuit_failure_threshold
    for _ in range(threshold):
        failed = await gateway.ask(f"v/{leaf}", stream=mode == "streamed")
        assert (failed.status, failed.error["code"]) == (502, "LM-3003")
    answer = await gateway.ask(f"v/{leaf}", stream=mode == "streamed")
    assert (answer.status, answer.text, answer.headers["x-lumen-fallback-from"]) == (200, "I am good", leaf)
    assert called(upstream, leaf) == threshold
