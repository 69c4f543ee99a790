"""Virtual models through the running program: who serves, by which route, and what the upstream gets to see.

Every test that takes `streamed` runs twice: what is true of an unstreamed request is true of a streamed one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from tests.process.program import Program

from lumen_gateway.simulator import Upstream, auto, error, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENT = """
resilience = { retry_max_attempts = 1, circuit_failure_threshold = 1000 }

[[providers]]
name = "north"
kind = "openai"
base_url = "NORTH/v1"
models = [
  { id = "a", capabilities = ["chat"], modalities = ["text", "image"] },
  { id = "b", capabilities = ["chat"], modalities = ["text", "image"] },
  { id = "broken", capabilities = ["chat"] },
  { id = "busy", capabilities = ["chat"] },
  { id = "fraying", capabilities = ["chat"] },
  { id = "whole-only", capabilities = ["chat"], stream = false },
  { id = "north/c", upstream_id = "Vendor/C:free", capabilities = ["chat"] },
]

[[providers]]
name = "south"
kind = "openai"
base_url = "SOUTH/v1"
models = [{ id = "d", capabilities = ["chat"] }]

[[virtual_models]]
id = "one"
capability = "chat"
strategy = "single"
targets = [{ model = "north/c" }]

[[virtual_models]]
id = "chain"
capability = "chat"
strategy = "fallback"
targets = [{ model = "broken" }, { model = "busy" }, { model = "d" }]

[[virtual_models]]
id = "doomed"
capability = "chat"
strategy = "fallback"
targets = [{ model = "broken" }, { model = "busy" }]

[[virtual_models]]
id = "able"
capability = "chat"
strategy = "fallback"
targets = [{ model = "whole-only" }, { model = "d" }]

[[virtual_models]]
id = "shares"
capability = "chat"
strategy = "split"
targets = [{ model = "a", weight = 3 }, { model = "d", weight = 1 }]

[[virtual_models]]
id = "half-broken"
capability = "chat"
strategy = "split"
targets = [{ model = "broken", weight = 1 }, { model = "d", weight = 1 }]

# A 429 of the inner chain stays inside it, a 503 leaves it: the inner chain lists rate limits only.
[[virtual_models]]
id = "inner-busy"
capability = "chat"
strategy = "fallback"
fallback_on = ["rate_limited"]
targets = [{ model = "busy" }, { model = "b" }]

[[virtual_models]]
id = "inner-broken"
capability = "chat"
strategy = "fallback"
fallback_on = ["rate_limited"]
targets = [{ model = "broken" }, { model = "b" }]

[[virtual_models]]
id = "outer-busy"
capability = "chat"
strategy = "fallback"
targets = [{ model = "inner-busy" }, { model = "d" }]

[[virtual_models]]
id = "outer-broken"
capability = "chat"
strategy = "fallback"
targets = [{ model = "inner-broken" }, { model = "d" }]

[[virtual_models]]
id = "deep"
capability = "chat"
strategy = "switch"
targets = [{ model = "outer-broken", when = { "metadata.deep" = true } }, { model = "half-broken" }]

[[virtual_models]]
id = "by-request"
capability = "chat"
strategy = "switch"
targets = [
  { model = "a", when = { has_images = true } },
  { model = "b", when = { has_tools = true } },
  { model = "north/c", when = { "header.x-team" = { regex = "^search-" } } },
  { model = "outer-busy", when = { "metadata.plan" = { in = ["free", "trial"] } } },
  { model = "a", when = { input_tokens = { gt = 1000 } } },
  { model = "d" },
]

[[virtual_models]]
id = "by-transport"
capability = "chat"
strategy = "switch"
targets = [{ model = "a", when = { stream = true } }, { model = "b" }]

[[virtual_models]]
id = "tuned"
capability = "chat"
strategy = "fallback"
targets = [
  { model = "broken", overrides = { set = { temperature = 0.9 }, drop = ["seed"] } },
  { model = "outer-tuned", overrides = { set = { top_p = 0.5 }, default = { max_tokens = 10 } } },
]

[[virtual_models]]
id = "outer-tuned"
capability = "chat"
strategy = "single"
targets = [{ model = "d", overrides = { default = { max_tokens = 20, stop = ["END"] }, drop = ["presence_penalty"] } }]

[[virtual_models]]
id = "preset-prepend"
capability = "chat"
strategy = "fallback"
targets = [{ model = "broken" }, { model = "d" }]
preset = { system_prompt = "Be kind.", overrides = { set = { temperature = 0.1 } } }

[[virtual_models]]
id = "preset-replace"
capability = "chat"
strategy = "single"
targets = [{ model = "d" }]
preset = { system_prompt = "Be kind.", system_prompt_mode = "replace" }

[[virtual_models]]
id = "preset-if-absent"
capability = "chat"
strategy = "single"
targets = [{ model = "d" }]
preset = { system_prompt = "Be kind.", system_prompt_mode = "if_absent" }

[[virtual_models]]
id = "early"
capability = "chat"
strategy = "fallback"
targets = [{ model = "fraying" }, { model = "d" }]

[[virtual_models]]
id = "held"
capability = "chat"
strategy = "fallback"
commit = "complete"
targets = [{ model = "fraying" }, { model = "d" }]
"""

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
IMAGE = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
]
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hello"}
KIND = {"role": "system", "content": "Be kind."}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def north() -> AsyncIterator[Upstream]:
    refused = {"broken": error(503), "busy": error(429), "fraying": stream(["Hel", "lo"], done=False, stop="end")}
    answered = {model: auto(f"I am {model}") for model in ("a", "b", "whole-only", "Vendor/C:free")}
    async with Upstream({**refused, **answered}) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def south() -> AsyncIterator[Upstream]:
    async with Upstream(auto("I am d")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(north: Upstream, south: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Program]:
    document = DOCUMENT.replace("NORTH", north.url).replace("SOUTH", south.url)
    async with Program(tmp_path_factory.mktemp("strategies"), document) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    assert isinstance(request.param, bool)
    return request.param


class Upstreams:
    """What both upstreams have seen since this was made."""

    def __init__(self, *upstreams: Upstream) -> None:
        self._upstreams = upstreams
        self._before = [len(upstream.calls) for upstream in upstreams]

    def bodies(self) -> list[dict[str, Any]]:
        calls = [
            call
            for upstream, before in zip(self._upstreams, self._before, strict=True)
            for call in upstream.calls[before:]
        ]
        return [call.json() for call in sorted(calls, key=lambda call: call.at)]

    def models(self) -> list[str]:
        return [body["model"] for body in self.bodies()]


@pytest.fixture
def seen(north: Upstream, south: Upstream) -> Upstreams:
    return Upstreams(north, south)


async def test_foundation_model_is_called_directly(gateway: Program, seen: Upstreams, streamed: bool) -> None:
    answer = await gateway.ask("a", stream=streamed)
    assert (answer.status, answer.text, answer.done, answer.route) == (200, "I am a", True, None)
    assert answer.headers["x-lumen-reason"] == "direct"
    assert seen.models() == ["a"]


async def test_single_leads_to_its_target_under_the_upstreams_own_name(
    gateway: Program, seen: Upstreams, streamed: bool
) -> None:
    answer = await gateway.ask("one", stream=streamed)
    assert (answer.text, answer.route, answer.served_by) == ("I am Vendor/C:free", "one>north/c", "north/c")
    assert answer.headers["x-lumen-virtual-model"] == "one"
    assert answer.headers["x-lumen-provider"] == "north"
    assert "x-lumen-fallback-from" not in answer.headers
    assert seen.models() == ["Vendor/C:free"]


async def test_fallback_goes_on_target_by_target(gateway: Program, seen: Upstreams, streamed: bool) -> None:
    answer = await gateway.ask("chain", stream=streamed)
    assert (answer.text, answer.done, answer.route) == ("I am d", True, "chain>d")
    assert (answer.headers["x-lumen-fallback-from"], answer.headers["x-lumen-fallback-index"]) == ("broken", "1")
    assert answer.headers["x-lumen-provider"] == "south"
    assert seen.models() == ["broken", "busy", "d"]


async def test_exhausted_fallback_answers_with_the_last_failure(
    gateway: Program, seen: Upstreams, streamed: bool
) -> None:
    answer = await gateway.ask("doomed", stream=streamed)
    assert (answer.status, answer.error["code"]) == (429, "LM-3001")
    assert answer.headers["x-lumen-fallback-exhausted"] == "true"
    assert answer.headers["content-type"] == "application/json"
    assert seen.models() == ["broken", "busy"]


async def test_leaf_that_cannot_take_the_request_is_passed_over(gateway: Program, seen: Upstreams) -> None:
    whole, streamed = await gateway.ask("able"), await gateway.ask("able", stream=True)
    assert (whole.served_by, streamed.served_by) == ("whole-only", "d")
    assert "x-lumen-fallback-from" not in streamed.headers
    assert seen.models() == ["whole-only", "d"]


async def test_split_uses_every_target_and_says_which(gateway: Program, streamed: bool) -> None:
    answers = await asyncio.gather(*(gateway.ask("shares", stream=streamed) for _ in range(120)))
    assert all(answer.route == f"shares>{answer.served_by}" for answer in answers)
    assert all(answer.text == f"I am {answer.served_by}" for answer in answers)
    counts = Counter(answer.served_by for answer in answers)
    assert set(counts) == {"a", "d"}
    assert counts["a"] > counts["d"]  # of 120 at three to one; otherwise once in 10^9 runs


async def test_split_goes_on_to_the_target_it_did_not_draw(gateway: Program, seen: Upstreams, streamed: bool) -> None:
    answers = [await gateway.ask("half-broken", stream=streamed) for _ in range(30)]
    assert {(answer.status, answer.text, answer.route) for answer in answers} == {(200, "I am d", "half-broken>d")}
    fell = [answer for answer in answers if "x-lumen-fallback-from" in answer.headers]
    assert 0 < len(fell) < len(answers)
    assert Counter(seen.models()) == {"broken": len(fell), "d": len(answers)}


@pytest.mark.parametrize(
    ("model", "called", "route"),
    [
        ("outer-busy", ["busy", "b"], "outer-busy>inner-busy>b"),
        ("outer-broken", ["broken", "d"], "outer-broken>d"),
    ],
)
async def test_failure_leaves_nested_chains_by_the_innermost_that_lists_it(
    gateway: Program, seen: Upstreams, streamed: bool, model: str, called: list[str], route: str
) -> None:
    answer = await gateway.ask(model, stream=streamed)
    assert (answer.status, answer.done, answer.route) == (200, True, route)
    assert seen.models() == called


async def test_switch_over_nested_chains_names_the_whole_way(gateway: Program, seen: Upstreams, streamed: bool) -> None:
    answer = await gateway.ask("deep", stream=streamed, headers={"x-lumen-metadata": '{"deep": true}'})
    assert answer.route == "deep>outer-broken>d"
    assert seen.models() == ["broken", "d"]
    assert (await gateway.ask("deep", stream=streamed)).route == "deep>half-broken>d"


@pytest.mark.parametrize(
    ("route", "headers", "body"),
    [
        ("a", {}, {"messages": [{"role": "user", "content": IMAGE}]}),
        ("b", {}, {"tools": TOOLS}),
        ("d", {}, {"tools": []}),
        ("north/c", {"X-Team": "search-eu"}, {}),
        ("d", {"X-Team": "research-eu"}, {}),
        ("outer-busy>inner-busy>b", {"x-lumen-metadata": '{"plan": "trial"}'}, {}),
        ("outer-busy>inner-busy>b", {"cf-aig-metadata": '{"plan": "free"}'}, {}),
        ("d", {"x-lumen-metadata": '{"plan": "paid"}'}, {}),
        ("d", {"x-lumen-metadata": '{"plan": ["free"]}'}, {}),
        ("a", {}, {"messages": [{"role": "user", "content": "word " * 5000}]}),
        ("d", {}, {}),
    ],
)
async def test_switch_takes_the_first_rule_that_holds(
    gateway: Program, streamed: bool, route: str, headers: Mapping[str, str], body: dict[str, Any]
) -> None:
    answer = await gateway.ask("by-request", stream=streamed, headers=headers, **body)
    assert (answer.status, answer.route) == (200, f"by-request>{route}")


async def test_switch_knows_a_stream_from_a_whole_answer(gateway: Program) -> None:
    assert (await gateway.ask("by-transport", stream=True)).route == "by-transport>a"
    assert (await gateway.ask("by-transport")).route == "by-transport>b"


async def test_each_attempt_gets_the_overrides_of_its_own_way(
    gateway: Program, seen: Upstreams, streamed: bool
) -> None:
    answer = await gateway.ask(
        "tuned", stream=streamed, temperature=0.5, seed=7, presence_penalty=0.3, x_unknown={"kept": 1.0}
    )
    assert answer.route == "tuned>outer-tuned>d"
    first, second = seen.bodies()
    unedited = {"messages": [USER], "x_unknown": {"kept": 1.0}}
    own = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
    assert first == {"model": "broken", "temperature": 0.9, "presence_penalty": 0.3, **unedited, **own}
    assert second == {
        "model": "d",
        "temperature": 0.5,
        "seed": 7,
        "top_p": 0.5,
        "max_tokens": 20,
        "stop": ["END"],
        **unedited,
        **own,
    }  # fmt: skip - one line per body


@pytest.mark.parametrize(
    ("model", "sent", "expected"),
    [
        ("preset-prepend", [USER], [KIND, USER]),
        ("preset-prepend", [SYSTEM, USER], [KIND, SYSTEM, USER]),
        ("preset-replace", [SYSTEM, USER], [KIND, USER]),
        ("preset-if-absent", [SYSTEM, USER], [SYSTEM, USER]),
        ("preset-if-absent", [USER], [KIND, USER]),
    ],
)
async def test_preset_reaches_every_target_once(
    gateway: Program, seen: Upstreams, streamed: bool, model: str, sent: list[Any], expected: list[Any]
) -> None:
    assert (await gateway.ask(model, stream=streamed, messages=sent)).served_by == "d"
    assert {str(body["messages"]) for body in seen.bodies()} == {str(expected)}
    if model == "preset-prepend":
        assert [body["temperature"] for body in seen.bodies()] == [0.1, 0.1]


async def test_stream_that_breaks_after_its_first_word_ends_in_an_error_and_goes_nowhere(
    gateway: Program, seen: Upstreams
) -> None:
    answer = await gateway.ask("early", stream=True)
    assert (answer.status, answer.text, answer.done, answer.route) == (200, "Hello", False, "early>fraying")
    assert answer.error["code"] == "LM-3010"
    assert seen.models() == ["fraying"]


async def test_stream_that_is_held_back_whole_can_break_anywhere(gateway: Program, seen: Upstreams) -> None:
    answer = await gateway.ask("held", stream=True)
    assert (answer.status, answer.text, answer.done, answer.route) == (200, "I am d", True, "held>d")
    assert seen.models() == ["fraying", "d"]
