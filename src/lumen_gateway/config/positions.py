"""The line of a key in TOML text. tomllib keeps no positions, so a scanner finds them, only when there is a fault.

Reads text that tomllib accepted, so it checks nothing; on text that tomllib would refuse it stops early and knows less.
"""

from __future__ import annotations

import contextlib
import re
import tomllib

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*+'""")
_STRING = re.compile(  # no possessive repeat around what backtracks: Python before 3.11.5 gets it wrong
    r'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']++|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]++|\\.)*+"'
    r"|'[^'\n]*+'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


def lines_of(text: str) -> dict[Path, int]:
    """Return the 1-based line where each key, table and array element first stands.

    Raises: nothing.
    """
    scanner = _Scanner(text)
    with contextlib.suppress(_LostError, RecursionError):  # what was found so far stays true
        scanner.document()
    return scanner.lines


def line_of(lines: dict[Path, int], path: Path) -> int | None:
    """Return the line of a path, or of the nearest table around it that is written; None for the whole document."""
    for end in range(len(path), 0, -1):
        line = lines.get(path[:end])
        if line is not None:
            return line
    return None


class _LostError(Exception):
    """The text is not the TOML it should be."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._line = 1  # of `_counted`
        self._counted = 0
        self._lengths: dict[Path, int] = {}  # arrays of tables written as [[...]]

    def document(self) -> None:
        table: Path = ()
        while not self._ended():
            if self._next("[["):
                table = self._header(repeats=True)
            elif self._next("["):
                table = self._header(repeats=False)
            else:
                self._pair(table)

    def _header(self, *, repeats: bool) -> Path:
        """Read `name]` or `name]]`: the path of the table it opens, with the index of every array on the way."""
        line = self._here()
        path: Path = ()
        keys = self._keys()
        for position, key in enumerate(keys):
            path = (*path, key)
            self.lines.setdefault(path, line)
            last = position == len(keys) - 1
            if last and repeats:
                self._lengths[path] = self._lengths.get(path, 0) + 1
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
                self.lines.setdefault(path, line)
        self.lines[path] = line  # `[a]` itself, rather than an `[a.b]` above it
        self._expect("]]" if repeats else "]")
        return path

    def _pair(self, table: Path) -> None:
        line = self._here()
        path = table
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._expect("=")
        self._match(_SPACE)
        self._value(path)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._match(_SPACE)
            keys.append(_decoded(self._match(_KEY)))
            self._match(_SPACE)
            if not self._next("."):
                return keys

    def _value(self, path: Path) -> None:
        if self._next("{"):
            self._inline_table(path)
        elif self._next("["):
            self._array(path)
        elif self._text.startswith(('"', "'"), self._at):
            self._match(_STRING)
        else:
            self._match(_SCALAR)

    def _inline_table(self, path: Path) -> None:
        while not (self._ended() or self._next("}")):
            self._pair(path)
            self._ended()
            self._next(",")

    def _array(self, path: Path) -> None:
        index = 0
        while not (self._ended() or self._next("]")):
            self.lines[*path, index] = self._here()
            self._value((*path, index))
            self._ended()
            self._next(",")
            index += 1

    # --- reading ------------------------------------------------------------------------------------------------------

    def _ended(self) -> bool:
        """Skip blanks, comments and line ends; tell whether nothing is left."""
        self._match(_BLANK)
        return self._at >= len(self._text)

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _next(self, token: str) -> bool:
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _expect(self, token: str) -> None:
        if not self._next(token):
            raise _LostError

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _LostError
        self._at = found.end()
        return found[0]


def _decoded(key: str) -> str:
    if not key.startswith(('"', "'")):
        return key
    try:
        return str(tomllib.loads(f"key = {key}")["key"])
    except tomllib.TOMLDecodeError:
        raise _LostError from None
