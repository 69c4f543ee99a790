"""Every command line the docs show exists: the `lumen` command, its options, and the verbs of the Makefile."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NamedTuple

import click
import pytest

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(r"^```console\n(.*?)^```$|`((?:lumen|make) [^`]+)`", re.MULTILINE | re.DOTALL)
VERB = re.compile(r"^([a-z]+):", re.MULTILINE)


class Line(NamedTuple):
    """One command line of a page, cut into words as a shell would."""

    page: str
    words: tuple[str, ...]


def lines_of(page: str, text: str) -> Iterator[Line]:
    """Yield the command lines of console blocks, and those that stand in a sentence."""
    for block, inline in SHOWN.findall(text):
        for line in (block or inline).replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield Line(page, (words[0].removeprefix(".venv/bin/"), *words[1:]))


def shown(program: str) -> list[Line]:
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    lines = (line for page in pages for line in lines_of(page.name, page.read_text()))
    return sorted({line for line in lines if line.words[0] == program})


def said(line: Line) -> str:
    return f"{line.page}: {shlex.join(line.words)}"


def unknown_words(command: click.Command, words: tuple[str, ...]) -> list[str]:
    """Return the words of a command line that the command does not know. Bare options are those of `lumen serve`."""
    if isinstance(command, click.Group) and words and words[0] not in {"--help", "--version"}:
        if words[0].startswith("-"):
            words = ("serve", *words)
        child = command.get_command(click.Context(command), words[0])
        return [words[0]] if child is None else unknown_words(child, words[1:])
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return [word for word in words if word.startswith("-") and word.partition("=")[0] not in options | {"--help"}]


@pytest.fixture(scope="module")
def lumen() -> click.Command:
    """The command that an installation puts on the PATH."""
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["lumen"]
    command = EntryPoint("lumen", script, "console_scripts").load()
    assert isinstance(command, click.Command)
    return command


@pytest.mark.parametrize("line", shown("lumen"), ids=said)
def test_lumen_command_of_the_docs_exists(line: Line, lumen: click.Command) -> None:
    assert unknown_words(lumen, line.words[1:]) == []


@pytest.mark.parametrize("line", shown("make"), ids=said)
def test_make_verb_of_the_docs_exists(line: Line) -> None:
    assert line.words[1] in VERB.findall((ROOT / "Makefile").read_text())


def test_unknown_commands_and_options_are_seen() -> None:
    serve = click.Command("serve", params=[click.Option(["-c", "--config"])])
    group = click.Group("lumen", {"serve": serve})
    assert unknown_words(group, ("serve", "-c", "lumen.toml")) == []
    assert unknown_words(group, ("-c", "lumen.toml")) == []
    assert unknown_words(group, ("serve", "--speed=9")) == ["--speed=9"]
    assert unknown_words(group, ("fly",)) == ["fly"]


def test_command_lines_are_found_in_blocks_and_in_sentences() -> None:
    page = "Say `lumen check` or:\n```console\n# first\nmake test  # all\n.venv/bin/lumen serve \\\n  -c x.toml\n```\n"
    found = [line.words for line in lines_of("page", page)]
    assert found == [("lumen", "check"), ("make", "test"), ("lumen", "serve", "-c", "x.toml")]
