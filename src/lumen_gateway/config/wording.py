"""How faults speak: paths, quoted words, near misses. Everything printed here is safe for a terminal and a log line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z").match
_LONGEST = 80  # characters of the document a message repeats


def dotted(path: tuple[str | int, ...]) -> str:
    """Write a path the way operators say it: `virtual_models[0].targets[1].model`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _BARE_KEY(step) else quoted(step))
    return text


def owner(document: Any, path: tuple[str | int, ...]) -> str:
    """Name the virtual model, and its target, into which a path leads: `virtual model "v", target "m"`."""
    names: list[str] = []
    for depth, array, noun, key in ((0, "virtual_models", "virtual model", "id"), (2, "targets", "target", "model")):
        if len(path) < depth + 2 or path[depth] != array or not isinstance(path[depth + 1], int):
            break
        document = document[array][path[depth + 1]]
        name = document.get(key) if isinstance(document, dict) else None
        if isinstance(name, str):
            names.append(f"{noun} {quoted(name)}")
    return ", ".join(names)


def quoted(text: str) -> str:
    """Put a word of the document in quotes, with control characters escaped and the far end of a long one cut."""
    shown = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    return '"' + "".join(_escaped(char) for char in shown) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def one_of(words: Iterable[str]) -> str:
    """List what may be written: `"a"`, or `one of "a", "b"`."""
    listed = [quoted(word) for word in words]
    return listed[0] if len(listed) == 1 else "one of " + ", ".join(listed)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word this one was probably meant to be."""
    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return found[0] if found else None
