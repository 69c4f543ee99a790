"""`docs/virtual-models.md` and the code agree: its examples compile and do what it tells, its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lumen_gateway.config.load import Document, parse_document
from lumen_gateway.config.schema import Fault
from lumen_gateway.errors import DEFAULT_TRIGGERS, TRIGGERS, Trigger
from lumen_gateway.routing.compile import compile_plan
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.graph import MAX_SIZE, MAX_TOTAL_SIZE
from lumen_gateway.routing.overrides import FIELDS
from lumen_gateway.routing.plan import MAX_ATTEMPTS, MAX_DEPTH, Entry, next_attempt
from lumen_gateway.routing.validate import MAX_PROMPT_BYTES
from lumen_gateway.routing.when import ATTRIBUTES

PAGE = (Path(__file__).parents[1] / "docs" / "virtual-models.md").read_text()
[FIRST] = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FRAGMENTS = re.findall(r"^```toml fragment\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    """Return what stands under a heading, up to the next one."""
    found = re.search(rf"^#+ {title}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(title: str) -> list[list[str]]:
    """Return the cells of every table row under a heading."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section(title).splitlines() if line[:1] == "|"
    ]


def document_of(*texts: str) -> Document:
    return parse_document(Path("virtual-models.md"), "\n".join(texts).encode(), {})


def faults_of(document: Document) -> list[Fault]:
    assert document.config is not None
    return [*document.faults, *compile_plan(document.config).faults]


def entry_of(model_id: str) -> Entry:
    document = document_of(FIRST, *FRAGMENTS)
    assert document.config is not None
    plan = compile_plan(document.config).plan
    assert plan is not None
    found = plan.find(model_id)
    assert found is not None
    return found


@pytest.mark.parametrize("example", FRAGMENTS)
def test_each_example_compiles_on_top_of_the_first(example: str) -> None:
    document = document_of(FIRST, example)
    assert [document.locate(fault) for fault in faults_of(document)] == []


def test_all_examples_make_one_document() -> None:
    assert faults_of(document_of(FIRST, *FRAGMENTS)) == []


def test_failures_of_the_example_lead_where_the_page_says() -> None:
    attempts = entry_of("outer").decide(Facts.of(), lambda: 0.0)
    assert [attempt.leaf for attempt in attempts] == ["gpt", "llama", "gpt-mini"]
    assert next_attempt(attempts, 0, Trigger.RATE_LIMITED) == 1
    assert next_attempt(attempts, 0, Trigger.PROVIDER_ERROR) == 2
    assert next_attempt(attempts, 1, Trigger.RATE_LIMITED) == 2


def test_route_of_the_page_is_one_of_its_examples() -> None:
    routes = {attempt.route for attempt in entry_of("outer").decide(Facts.of(), lambda: 0.0)}
    assert set(re.findall(r"x-lumen-route: (\S+)", section("The route"))) <= routes


def test_every_trigger_is_listed_in_order_with_its_default() -> None:
    listed = {cells[0].strip("`"): cells[1] == "yes" for cells in rows("Triggers")[2:]}
    assert list(listed) == list(TRIGGERS)
    assert listed == {name: name != "any_error" and bool(mask & DEFAULT_TRIGGERS) for name, mask in TRIGGERS.items()}


def test_every_condition_is_listed_with_its_capabilities() -> None:
    listed = {
        cells[0].strip('`"'): cells[2] for cells in rows("when")[2:] if cells[0].count("`") == 2 and len(cells) == 4
    }
    fixed = {name: attribute.capabilities for name, attribute in ATTRIBUTES.items()}
    assert listed.keys() == fixed.keys() | {"metadata.<key>", "header.<name>"}
    everywhere = frozenset(FIELDS)
    for name, capabilities in fixed.items():
        assert (everywhere if listed[name] == "all" else set(listed[name].split(", "))) == capabilities


def test_every_operator_is_listed() -> None:
    shown = section("when")
    assert all(f"`{operator}`" in shown or f"{{ {operator} = " in shown for operator in _operators())


def _operators() -> set[str]:
    return {operator for attribute in ATTRIBUTES.values() for operator in attribute.operators}


def test_every_field_that_can_be_overridden_is_listed() -> None:
    listed = {cells[0]: re.findall(r"`(\w+)`", cells[1]) for cells in rows("Overrides")[2:]}
    assert listed == {capability: list(fields) for capability, fields in FIELDS.items() if fields}


def test_limits_are_those_of_the_code() -> None:
    shown = [int(cells[1].replace(",", "")) for cells in rows("How a request is routed")[2:]]
    assert shown == [MAX_DEPTH, MAX_ATTEMPTS, MAX_SIZE, MAX_TOTAL_SIZE]
    assert f"{MAX_PROMPT_BYTES:,} bytes" in section("Presets")
