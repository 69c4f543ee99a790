"""Recorded answers of real providers, for tests that replay them.

The recordings are not part of this repository. A test that wants them takes the parameters of `recorded(...)` and is
skipped, visibly, where the environment variable `RECORDINGS_DIR` names no folder. The folder holds `index.json` and one
JSON file for each exchange with `response.status`, `response.headers` and one of `body`, `sse`, `text`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest


class Recording(msgspec.Struct, frozen=True):
    """One exchange. `body` is what the client of the provider read, as bytes."""

    file: str
    provider: str
    api: str
    stream: bool
    status: int
    features: tuple[str, ...]
    headers: dict[bytes, bytes]
    path: str
    body: bytes


def _load(folder: Path, entry: dict[str, Any]) -> Recording:
    exchange = json.loads((folder / entry["file"]).read_text())
    response = exchange["response"]
    text = response.get("sse", response.get("text"))
    return Recording(
        entry["file"],
        entry["provider"],
        entry["api"],
        entry["stream"],
        entry["status"],
        tuple(entry["features"]),
        {name.lower().encode(): str(value).encode() for name, value in response["headers"].items()},
        exchange["request"]["path"],
        json.dumps(response.get("body")).encode() if text is None else text.encode(),
    )


def recorded(wanted: Callable[[dict[str, Any]], bool]) -> list[Any]:
    """Return the recordings whose line of the index is wanted, as parameters; a skipped one where there are none."""
    folder = os.environ.get("RECORDINGS_DIR")
    if not folder or not Path(folder, "index.json").is_file():
        return [pytest.param(None, id="no-recordings", marks=pytest.mark.skip(reason="RECORDINGS_DIR is not set"))]
    index = json.loads(Path(folder, "index.json").read_text())
    return [pytest.param(_load(Path(folder), entry), id=entry["file"]) for entry in index if wanted(entry)]


def is_chat_answer(entry: dict[str, Any]) -> bool:
    """Say whether it is a good answer in the Chat Completions dialect; two vendors call their own dialects chat too."""
    return bool(
        entry["api"] == "chat"
        and entry["status"] < 400
        and entry["provider"] != "cohere"
        and not _is_native_ollama(entry)
    )


def _is_native_ollama(entry: dict[str, Any]) -> bool:
    return bool(entry["provider"] == "ollama" and entry["file"].startswith("ollama/native"))
