"""Where the keeper's document comes from. A file today; the database's document stands beside it later.

The directory is watched rather than the file, because editors and deployment tools replace files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from watchfiles import awatch

from lumen_gateway.config.load import DEFAULT_NAMES, Document, read_document

DEBOUNCE_MS = 250


class FileSource:
    """A document in a file, with the environment on top."""

    def __init__(self, path: Path | None, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = environ

    def read(self) -> Document:
        """Read and check the document as it is now. Raises nothing: what is wrong are the document's faults."""
        return read_document(self._path, self._environ)

    async def changes(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Yield whenever the file may have changed, until `stop` is set."""
        folder, names = self._watched()
        async for changed in awatch(folder, debounce=DEBOUNCE_MS, stop_event=stop, recursive=False):
            if any(Path(where).name in names for _, where in changed):
                yield

    def _watched(self) -> tuple[Path, set[str]]:
        """Return the folder to watch and the names that matter in it: the file's, and what it is a link to."""
        path = self._path or next((Path(name) for name in DEFAULT_NAMES if Path(name).exists()), Path(DEFAULT_NAMES[0]))
        return path.absolute().parent, {path.name, path.resolve().name}
