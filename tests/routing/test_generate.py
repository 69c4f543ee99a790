"""The generated Python: readable, small, and without a word of the document that could be run."""

from __future__ import annotations

import ast
from typing import Any

from hypothesis import given, settings
from tests.routing import documents
from tests.routing.documents import config_of, virtual

from lumen_gateway.config.schema import Config
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.generate import flatten, generate
from lumen_gateway.routing.tree import Grower, Node
from lumen_gateway.routing.validate import check_models


def grow(config: Config, model_id: str) -> Node:
    return Grower(config, check_models(config).conditions).grow(model_id)


ROUTER = (
    virtual("canary", "split", {"model": "a", "weight": 80}, {"model": "b", "weight": 20}),
    virtual("safe", "fallback", "canary", "c"),
    virtual("router", "switch", {"model": "safe", "when": {"metadata.plan": {"regex": "^pro"}}}, "d"),
)


def test_source_reads_like_the_document() -> None:
    source, _ = generate(grow(config_of(*ROUTER), "router"))
    assert (
        source
        == """\
def choose(facts, draw):  # router(safe, d)
    # metadata.plan regex "^pro"
    if matches_2[facts.metadata.get(text_1)]:
        return orders_3[bisect(edges_4, draw() * 100)] + tries_5  # safe(canary, c)
    return tries_6  # d
"""
    )


def test_split_over_a_choice_tells_each_part_whether_it_comes_first() -> None:
    outer = virtual("outer", "split", {"model": "router", "weight": 1}, {"model": "c", "weight": 2})
    source, choose = generate(grow(config_of(*ROUTER, outer), "outer"))
    assert (
        source
        == """\
def choose(facts, draw):  # outer(1 router, 2 c)
    first = bisect(edges_1, draw() * 3)
    part_0 = in_router_2(facts, draw, 0 if first == 0 else 1)  # router(safe, d)
    part_1 = tries_9[0 if first == 1 else 1]  # c
    if first == 0:
        return part_0 + part_1
    return part_1 + part_0

def in_router_2(facts, draw, opens):  # router(safe, d)
    # metadata.plan regex "^pro"
    if matches_4[facts.metadata.get(text_3)]:
        return orders_5[opens][bisect(edges_6, draw() * 100)] + tries_7  # safe(canary, c)
    return tries_8[opens]  # d
"""
    )
    draws = iter([0.9, 0.9])
    attempts = choose(Facts.of(metadata={"plan": "pro"}), draws.__next__)
    opened = [(attempt.leaf, attempt.starts) for attempt in attempts]
    assert opened == [("c", 0b000), ("b", 0b001), ("a", 0b100), ("c", 0b010)]


def test_comment_names_a_few_parts_and_counts_the_rest() -> None:
    source, _ = generate(grow(config_of(virtual("v", "split", *[{"model": "a", "weight": 1}] * 9)), "v"))
    assert source.splitlines()[0].endswith("# v(1 a, 1 a, 1 a, 1 a, 1 a, 1 a, and 3 more)")


def test_fixed_node_marks_where_each_target_opens() -> None:
    config = config_of(virtual("in", "fallback", "a", "b"), virtual("out", "fallback", "in", "in"))
    assert [attempt.starts for attempt in flatten(grow(config, "out"))] == [0b00, 0b10, 0b01, 0b10]


def constants(source: str) -> set[Any]:
    return {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}


@settings(deadline=None, max_examples=50)
@given(documents.trees())
def test_code_holds_no_constant_of_the_document_but_positions_weights_and_flags(tree: tuple[Config, str]) -> None:
    node = grow(*tree)
    if not node.fixed:
        source, _ = generate(node)
        assert all(isinstance(constant, int) for constant in constants(source))
        assert all(line.isprintable() for line in source.split("\n"))


def test_text_of_the_document_cannot_leave_its_comment() -> None:
    evil = 'x"\n    raise SystemExit\u2028\x0c#'
    rule = {
        "model": "a",
        "when": {f"metadata.{evil}": {"in": [evil, 1]}, "group": {"regex": "a\nb"}, "any": [{"group": evil}]},
    }
    node = grow(config_of(virtual("v", "switch", rule, "b")), "v")
    source, choose = generate(node)
    assert len(source.splitlines()) == 5
    assert choose(Facts.of(), lambda: 0.0)[0].leaf == "b"
    assert choose(Facts.of(metadata={evil: evil}, group_names=("a\nb", evil)), lambda: 0.0)[0].leaf == "a"


def test_deep_splits_stay_small() -> None:
    models = [virtual("s0", "split", *[{"model": "a", "weight": 1}] * 8)]
    for level in range(1, 8):
        targets = [*[{"model": "a", "weight": 1}] * 7, {"model": f"s{level - 1}", "weight": 3}]
        models.append(virtual(f"s{level}", "split", *targets))
    source, choose = generate(grow(config_of(*models), "s7"))
    assert len(source) < 20_000
    assert len(choose(Facts.of(), lambda: 0.5)) == 57
