"""`docs/errors.md` and the registry say the same, in both directions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from lumen_gateway.errors import TRIGGERS, Kind

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"


class Entry(NamedTuple):
    """What the page says of one failure, and what the registry must say too."""

    code: str
    status: str
    outcome: str
    fallback_on: str
    retried: str
    breaker: str


def entry_of(kind: Kind) -> Entry:
    """Render a failure's row as the page does."""
    row = kind.row
    names = [name for name, mask in TRIGGERS.items() if name != "any_error" and mask & row.triggers]
    if row.triggers and not names:
        names = ["any_error"]
    return Entry(
        code=row.code,
        status=str(row.status) if row.status else "upstream's",
        outcome=kind.outcome,
        fallback_on=", ".join(names) or "-",
        retried="yes" if row.retryable else "no",
        breaker="yes" if row.provider_fault else "no",
    )


def entries_of(page: str) -> list[Entry]:
    """Read the rows of the page's tables that begin with a code and have a remedy at their end."""
    rows = (line.strip("| ").replace("`", "").split(" | ") for line in page.splitlines() if line.startswith("| `LM-"))
    return [Entry(*cells[:6]) for cells in rows]


DOCUMENTED = entries_of(PAGE.read_text())
REGISTERED = [entry_of(kind) for kind in Kind]


def test_every_failure_of_the_registry_is_on_the_page() -> None:
    assert [entry for entry in REGISTERED if entry not in DOCUMENTED] == []


def test_every_row_of_the_page_is_in_the_registry() -> None:
    assert [entry for entry in DOCUMENTED if entry not in REGISTERED] == []


def test_no_row_of_the_page_stands_twice() -> None:
    assert len(set(DOCUMENTED)) == len(DOCUMENTED)


def test_every_row_says_what_to_do_or_what_it_means() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `LM-")]
    assert all(re.search(r"\| [A-Z][^|]{20,}\. \|$", line) for line in lines)


def test_first_digit_of_a_code_tells_its_type() -> None:
    requests = dict.fromkeys("124", "invalid_request")
    types = requests | {"3": "upstream_error", "5": "internal", "6": "client_cancelled"}
    assert [kind for kind in Kind if types[kind.row.code[3]] != kind.row.type] == []
