"""What must not stand in the tree, and what a document may point at.

A clone installs from whatever registry its machine is set up for, and needs nothing that lies outside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GENERATED = frozenset({"__pycache__", "build", "dist"})

# The escaped dots keep this file from finding itself.
DOWNLOAD_ADDRESS = re.compile(
    r"(?:pypi|pythonhosted|npmjs|maven|golang|debian)\.(?:org|com)\b|crates\.io\b"
    r"|https?://\S+\.(?:whl|tar\.gz|tgz|zip|deb)\b",
    re.IGNORECASE,
)
OUTSIDE = re.compile(r"\.\./shared|/work/(?:main|shared)")
LOOKS_OUTSIDE = "Makefile"  # for recorded traffic that may lie beside the checkout
CITED = re.compile(r"(docs/[\w/-]+\.md)(?:, \"([^\"]+)\")?")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)(?:#[^)\s]*)?\)")


def files_below(folder: Path) -> Iterator[Path]:
    """Yield every file a commit could take: no caches, no environments, no build results."""
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".") and path.name not in {".ci", ".gitignore"}
        if hidden or path.name in GENERATED or path.suffix in {".egg-info", ".db"}:
            continue
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


def lines_with(pattern: re.Pattern[str]) -> list[tuple[str, int]]:
    """Return the file and line number of every match in the tree."""
    return [
        (path.relative_to(ROOT).as_posix(), number)
        for path in files_below(ROOT)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def has_section(page: Path, heading: str) -> bool:
    """Say whether the page exists and has that heading, if one is asked for."""
    if not page.exists():
        return False
    headings = (line.lstrip("# ").replace("`", "") for line in page.read_text().splitlines() if line.startswith("#"))
    return heading in {"", *headings}


def test_no_file_names_a_registry_or_a_download() -> None:
    assert lines_with(DOWNLOAD_ADDRESS) == []


def test_only_the_makefile_looks_outside_the_checkout() -> None:
    assert {name for name, _ in lines_with(OUTSIDE)} <= {LOOKS_OUTSIDE}


@pytest.mark.parametrize(
    "line",
    [
        "pip install -i https://pypi" + ".org/simple",
        "https://mirror.example/a-1.0-py3-none-any" + ".whl",
        "CRATES" + ".io",
    ],
)
def test_a_download_address_would_be_seen(line: str) -> None:
    assert DOWNLOAD_ADDRESS.search(line)


@pytest.mark.parametrize(
    "page", [path for path in files_below(ROOT) if path.suffix == ".md"], ids=lambda path: path.name
)
def test_every_link_of_a_document_leads_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_every_page_and_section_that_the_source_cites_exists() -> None:
    cited = {found for path in files_below(ROOT / "src") for found in CITED.findall(path.read_text())}
    missing = [f"{page}, {section!r}" for page, section in sorted(cited) if not has_section(ROOT / page, section)]
    assert missing == []
