"""`docs/operations.md` and the program say the same: its options, its routes, and what it tells of the document."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from starlette.routing import Route

from lumen_gateway.admin.site import Access, site
from lumen_gateway.cli.serve import command
from lumen_gateway.documents import Condition
from lumen_gateway.serving import DRAIN_S
from lumen_gateway.supervise import WorkerState

PAGE = (Path(__file__).parents[1] / "docs" / "operations.md").read_text()
ANY_VIEWS: Any = SimpleNamespace()


def names(struct: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(struct)]


def test_page_lists_every_option_of_serve_and_no_other() -> None:
    rows = re.findall(r"^\| (`-.*?`) \| .* \| .* \|$", PAGE, re.MULTILINE)
    shown = {option for row in rows for option in re.findall(r"`(.*?)`", row)}
    assert shown == {option for parameter in command.params for option in parameter.opts}


def test_page_says_how_long_a_drain_takes() -> None:
    assert f"| `--drain` | {DRAIN_S:g} |" in PAGE


def test_page_lists_every_route_of_the_site_beside_the_workers_own() -> None:
    shown = set(re.findall(r"^\| `(/\S+)` \|", PAGE, re.MULTILINE))
    routes = {route.path for route in site(ANY_VIEWS, Access(public=True)).routes if isinstance(route, Route)}
    assert shown == {"/health"} | routes


def test_page_shows_every_field_of_the_documents_state() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    shown = json.loads(block)
    assert list(shown) == [*names(Condition), "workers"]
    assert list(shown["workers"][0]) == names(WorkerState)
