"""A document in a file: read as it is, and noticed when it becomes another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lumen_gateway.config.sources import FileSource, mark_of

SOON_S = 20.0  # never reached but by what is broken


@asynccontextmanager
async def watched(source: FileSource) -> AsyncIterator[AsyncIterator[None]]:
    """Read the document, watch it, and stop watching."""
    source.read()
    stop = asyncio.Event()
    changes = source.changes(stop)
    try:
        yield changes
    finally:
        stop.set()
        async with asyncio.timeout(SOON_S):
            assert [each async for each in changes] == []


async def noticed(changes: AsyncIterator[None]) -> None:
    async with asyncio.timeout(SOON_S):
        await anext(changes)


def test_document_is_read_with_the_environment_on_top(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text("[server]\nport = 1\n")
    config = FileSource(tmp_path / "d.toml", {"LUMEN_SERVER__PORT": "2"}).read().config
    assert config is not None
    assert config.server.port == 2


async def test_change_before_the_watch_began_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    source = FileSource(path, {})
    async with watched(source) as changes:
        path.write_text("# new")
        await noticed(changes)


async def test_default_document_that_comes_later_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with watched(FileSource(None, {})) as changes:
        (tmp_path / "lumen.toml").write_text("# new")
        await noticed(changes)


async def test_folder_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        await anext(FileSource(tmp_path / "nowhere" / "d.toml", {}).changes(asyncio.Event()))


def test_mark_changes_with_the_content_and_with_where_the_path_leads(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("same")
    link = tmp_path / "link"
    assert mark_of(link) is None
    link.symlink_to("one")
    marks = [mark_of(link)]
    assert mark_of(link) == marks[0]
    link.unlink()
    link.symlink_to("two")
    marks.append(mark_of(link))
    (tmp_path / "two").write_text("other text")
    marks.append(mark_of(link))
    assert len(set(marks)) == 3
