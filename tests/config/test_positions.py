"""The line of every key, table and element, in documents as people and machines write them."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumen_gateway.config.positions import line_of, lines_of

Path = tuple[str | int, ...]

DOCUMENT = '''\
# comment with = and [
log_format = "json"
[server]
port = 1 # trailing
"host name" = 'x'

[a.b] # outer table not written
c.d."e.f" = 1
c.g = 2
[a]
z = [ # array
  1,
  [2, 3],

  { k = 1, l.m = [
    4] },
]
[[p]]
text = """
[not.a.table]
key = 1 \\""" ""
"""
raw = \'\'\'
# no comment
it''s\'\'\'
after = 1979-05-27 07:32:00
[[p.q]]
x = """a"""""
[[p.q]]
x = \'\'\'b\'\'\'\'\'
y = -1.5e3
[p.q.t]
u = true
[[p]]
[[p.q]]
x = {}
[ spaced . "out" ]
k = ""
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("log_format",), 2),
        (("server",), 3),
        (("server", "port"), 4),
        (("server", "host name"), 5),
        (("a",), 10),
        (("a", "b"), 7),
        (("a", "b", "c", "d", "e.f"), 8),
        (("a", "b", "c"), 8),
        (("a", "b", "c", "g"), 9),
        (("a", "z"), 11),
        (("a", "z", 0), 12),
        (("a", "z", 1), 13),
        (("a", "z", 1, 1), 13),
        (("a", "z", 2), 15),
        (("a", "z", 2, "k"), 15),
        (("a", "z", 2, "l", "m"), 15),
        (("a", "z", 2, "l", "m", 0), 16),
        (("p",), 18),
        (("p", 0), 18),
        (("p", 0, "text"), 19),
        (("p", 0, "raw"), 23),
        (("p", 0, "after"), 26),
        (("p", 0, "q", 0, "x"), 28),
        (("p", 0, "q", 1), 29),
        (("p", 0, "q", 1, "x"), 30),
        (("p", 0, "q", 1, "y"), 31),
        (("p", 0, "q", 1, "t", "u"), 33),
        (("p", 1), 34),
        (("p", 1, "q", 0, "x"), 36),
        (("spaced", "out", "k"), 38),
    ],
)
def test_line_of_a_path(path: Path, line: int) -> None:
    tomllib.loads(DOCUMENT)
    assert lines_of(DOCUMENT)[path] == line


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("server", "nope"), 3),
        (("p", 0, "nope", "deeper", 3), 18),
        (("p", 1, "nope"), 34),
        (("a", "z", 9), 11),
        (("nope",), None),
        ((), None),
    ],
)
def test_what_is_not_written_falls_back_to_the_table_around_it(path: Path, line: int | None) -> None:
    assert line_of(lines_of(DOCUMENT), path) == line


def test_key_not_written_in_an_inherited_table_falls_back_to_its_array() -> None:
    assert lines_of("[[p]]\n[p.q]\na = 1\n[[p]]\n[p.q]\na = 2\n") == {
        ("p",): 1,
        ("p", 0): 1,
        ("p", 0, "q"): 2,
        ("p", 0, "q", "a"): 3,
        ("p", 1): 4,
        ("p", 1, "q"): 5,
        ("p", 1, "q", "a"): 6,
    }


@pytest.mark.parametrize(
    "text", ["a = ", "[a", "[[a]", "= 1", 'a = "x', '"a\\z" = 1', "a = [1, {", "[" * 3000, "a = " + "[" * 3000]
)
def test_text_that_is_no_toml_ends_the_search_quietly(text: str) -> None:
    lines_of("good = 1\n" + text)


@given(st.text(alphabet="[]{}=.,#\"'\\\n ab1", max_size=40))
def test_no_text_raises(text: str) -> None:
    lines_of(text)


def test_long_strings_take_linear_time_even_unterminated() -> None:
    lines_of('a = """' + 'x"' * 200_000)
    lines_of("a = '''" + "x'" * 200_000)
    lines_of('a = "' + "\\\\" * 200_000)


# --- any document -----------------------------------------------------------------------------------------------------

keys = st.one_of(st.sampled_from(["a", "b", "c-d", "1"]), st.text(alphabet="x.\"#]'\n é", max_size=4))
scalars = st.one_of(st.integers(-9, 9), st.booleans(), st.text(alphabet="ab\"'\\\n#[]{},= ", max_size=6))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=12,
)


class Writer:
    """Writes a document in a drawn style and keeps the line of everything it writes."""

    def __init__(self, data: st.DataObject) -> None:
        self.text = ""
        self.lines: dict[Path, int] = {}
        self._draw = data.draw

    def table(self, path: Path, header: str, content: dict[str, Any]) -> None:
        later = []
        for key, value in content.items():
            if (isinstance(value, dict) or self._tables(value)) and self._flip():
                later.append((key, value))
            else:
                self._blank()
                self._here((*path, key))
                self.text += f"{self._key(key)} = "
                self._value((*path, key), value)
                self.text += self._pick("\n", " # end\n")
        for key, value in later:
            self._headed((*path, key), f"{header}.{self._key(key)}".lstrip(".") if header else self._key(key), value)

    def _headed(self, path: Path, header: str, value: Any) -> None:
        for index, item in enumerate(value if isinstance(value, list) else [value]):
            self._blank()
            self.lines.setdefault(path, self._line())
            inner = path
            if isinstance(value, list):
                inner = (*path, index)
                self._here(inner)
            self.text += f"[[{header}]]\n" if isinstance(value, list) else f"[{header}]\n"
            self.table(inner, header, item)

    def _value(self, path: Path, value: Any) -> None:
        if isinstance(value, dict):
            self._inline_table(path, value)
        elif isinstance(value, list):
            self._array(path, value)
        else:
            self.text += self._string(value) if isinstance(value, str) else json.dumps(value)

    def _inline_table(self, path: Path, value: dict[str, Any]) -> None:
        self.text += "{ "
        for number, (key, inner) in enumerate(value.items()):
            self.text += ", " if number else ""
            self._here((*path, key))
            self.text += f"{self._key(key)}="
            self._value((*path, key), inner)
        self.text += " }"

    def _array(self, path: Path, value: list[Any]) -> None:
        self.text += "["
        for index, inner in enumerate(value):
            self.text += self._pick("", "\n", " # ]\n\n")
            self._here((*path, index))
            self._value((*path, index), inner)
            self.text += self._pick(",", " ,", " # ,\n,")
        self.text += "]"

    def _string(self, value: str) -> str:
        plain = json.dumps(value, ensure_ascii=False)
        long = '"""\n' + value.replace("\\", "\\\\").replace('"', '\\"') + '"""'
        raw = f"'{value}'" if "'" not in value and "\n" not in value else plain
        return self._pick(plain, long, raw)

    def _key(self, key: str) -> str:
        bare = key.isascii() and key.replace("-", "").isalnum()
        return key if bare else json.dumps(key, ensure_ascii=False)

    def _tables(self, value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)

    def _blank(self) -> None:
        self.text += self._pick("", "\n", "# [x] = 1\n", "  ")

    def _here(self, path: Path) -> None:
        self.lines[path] = self._line()

    def _line(self) -> int:
        return self.text.count("\n") + 1

    def _flip(self) -> bool:
        return self._draw(st.booleans())

    def _pick(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))


@settings(max_examples=150)
@given(st.data(), st.dictionaries(keys, values, max_size=4))
def test_every_key_of_any_document_has_its_line(data: st.DataObject, content: dict[str, Any]) -> None:
    writer = Writer(data)
    writer.table((), "", content)
    assert tomllib.loads(writer.text) == content
    assert lines_of(writer.text) == writer.lines
