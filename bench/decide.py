"""What it costs to decide: from a requested id to the attempts it may make.

Goals: three levels below 1 us and 20 empty calls, a direct id below 0.2 us and 4 empty calls.
"""

from __future__ import annotations

import random
import timeit
import tomllib
from collections.abc import Callable

import msgspec

from lumen_gateway.config.schema import Config
from lumen_gateway.dialects.chat import parse_request
from lumen_gateway.records import ANONYMOUS
from lumen_gateway.routing.compile import compile_plan
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.plan import Entry

CALLS, ROUNDS = 50_000, 15

DOCUMENT = """
[[providers]]
name = "one"
kind = "openai"
models = [
  { id = "a", capabilities = ["chat"] },
  { id = "b", capabilities = ["chat"] },
  { id = "c", capabilities = ["chat"] },
]

[[virtual_models]]
id = "three-levels"
capability = "chat"
strategy = "switch"
targets = [{ model = "safe", when = { "metadata.plan" = { regex = "^(pro|team)" } } }, { model = "c" }]

[[virtual_models]]
id = "safe"
capability = "chat"
strategy = "fallback"
targets = [{ model = "canary" }, { model = "c" }]

[[virtual_models]]
id = "canary"
capability = "chat"
strategy = "split"
targets = [{ model = "a", weight = 80 }, { model = "b", weight = 20 }]
"""
SIXTY_FOUR = {
    "id": "sixty-four",
    "capability": "chat",
    "strategy": "fallback",
    "targets": [{"model": "canary"}, *[{"model": "c"}] * 62],
}
BODY = b'{"model":"three-levels","messages":[{"role":"user","content":"hi"}]}'


def run() -> dict[str, float]:
    """Measure a decision; the look-up of a direct id is in it, the making of facts is apart."""
    document = tomllib.loads(DOCUMENT)
    document["virtual_models"].append(SIXTY_FOUR)
    plan = compile_plan(msgspec.convert(document, Config)).plan
    assert plan is not None
    request, metadata = parse_request(BODY), {"plan": "pro-yearly"}
    facts = Facts.of_chat(request, [], metadata, ANONYMOUS)

    def entry(model_id: str) -> Entry:
        found = plan.find(model_id)
        assert found is not None
        return found

    three, many = entry("three-levels"), entry("sixty-four")
    assert len(three.decide(facts, random.random)) == 3
    assert len(many.decide(facts, random.random)) == 64
    return {
        "decide_3level_ns": best(lambda: three.decide(facts, random.random)),
        "decide_64_ns": best(lambda: many.decide(facts, random.random)),
        "decide_direct_ns": best(lambda: plan.find("a").decide(facts, random.random)),  # type: ignore[union-attr]  # it is there
        "facts_ns": best(lambda: Facts.of_chat(request, [], metadata, ANONYMOUS)),
    }


def best(call: Callable[[], object]) -> float:
    """Return the nanoseconds of one call in the best round, less the call of `call` itself."""
    around = min(timeit.repeat(lambda: None, number=CALLS, repeat=ROUNDS))
    return (min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) - around) / CALLS * 1e9
