"""Where the keeper's document comes from. A file today; the database's document stands beside it later.

Folders are watched rather than the file, because editors and deployment tools replace files, and links to them: in a
mounted ConfigMap the file is a link into a folder that is itself swapped by a link. So whatever happens around the file
only raises the question; the answer is what the path leads to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from watchfiles import awatch

from lumen_gateway.config.load import DEFAULT_NAMES, Document, read_document

DEBOUNCE_MS = 250
SETTLE_S = 0.1

Mark = tuple[str, int, int, int]
"""What a path led to: real path, inode, size and time of the last change."""


class FileSource:
    """A document in a file, with the environment on top."""

    def __init__(self, path: Path | None, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = environ
        self._read: Mark | None = None

    def read(self) -> Document:
        """Read and check the document as it is now. Raises nothing: what is wrong are the document's faults."""
        self._read = mark_of(self._file())
        return read_document(self._path, self._environ)

    async def changes(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Yield whenever the file is another than the one last read, until `stop` is set.

        Raises: OSError or RuntimeError when its folder cannot be watched.
        """
        file = self._file()
        folders = {file.absolute().parent, file.resolve().parent}
        seen = self._read
        async for _ in _occasions(folders, stop):
            mark = mark_of(file)
            if mark in {seen, self._read}:
                continue
            await asyncio.sleep(SETTLE_S)
            if mark_of(file) == mark:  # else it is still being written, and there is a next occasion
                seen = mark
                yield

    def _file(self) -> Path:
        """Return the document's path; a default one that is not there yet may still come."""
        if self._path is not None:
            return self._path
        return next((Path(name) for name in DEFAULT_NAMES if Path(name).exists()), Path(DEFAULT_NAMES[0]))


async def _occasions(folders: set[Path], stop: asyncio.Event) -> AsyncIterator[None]:
    """Yield when to look: at once, when something happens there, and every few seconds in case that was missed."""
    yield
    async for _ in awatch(
        *folders, watch_filter=None, debounce=DEBOUNCE_MS, stop_event=stop, recursive=False, yield_on_timeout=True
    ):
        yield


def mark_of(file: Path) -> Mark | None:
    """Tell one state of a file from another; None while there is none."""
    try:
        status = file.stat()
        return str(file.resolve()), status.st_ino, status.st_size, status.st_mtime_ns
    except OSError:
        return None
