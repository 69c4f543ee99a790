"""What a document that is not TOML is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumen_gateway.config.load import parse_document


@pytest.mark.parametrize("value", ["OPENAI_API_KEY", "True", "http://127.0.0.1", "yes"])
def test_text_without_quotes_is_told_to_take_some(value: str) -> None:
    document = parse_document(Path("lumen.toml"), f"\na = {value}\n".encode(), {})
    (said,) = (document.locate(fault) for fault in document.faults)
    assert said.startswith("lumen.toml:2: is not valid TOML: Invalid value; put text in quotes; ")
