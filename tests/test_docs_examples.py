"""The documents and programs that the docs show are right: a reader will copy them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from lumen_gateway.config.load import parse_document
from lumen_gateway.routing.compile import compile_plan

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str


def examples(language: str) -> list[Example]:
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        Example(page.relative_to(ROOT).as_posix(), text.count("\n", 0, block.start()) + 1, block[1], block[2])
        for page in pages
        for text in [page.read_text()]
        for block in BLOCK.finditer(text)
        if block[1] == language
    ]


def place(example: Example) -> str:
    return f"{example.page}:{example.line}"


@pytest.mark.parametrize("example", examples("toml"), ids=place)
def test_document_of_the_docs_has_no_fault(example: Example) -> None:
    document = parse_document(Path(example.page), example.text.encode(), {})
    assert [document.locate(fault) for fault in document.faults] == []
    assert document.config is not None
    assert [document.locate(fault) for fault in compile_plan(document.config).faults] == []


@pytest.mark.parametrize("example", examples("python"), ids=place)
def test_program_of_the_docs_is_python(example: Example) -> None:
    ast.parse(example.text)


def test_readme_shows_a_document_and_a_program() -> None:
    assert {"README.md"} <= {example.page for example in examples("toml")}
    assert {"README.md"} <= {example.page for example in examples("python")}
