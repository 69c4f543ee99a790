"""`lumen check`: what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lumen_gateway.cli.check import command

GOOD = """\
[[providers]]
name = "a"
kind = "openai"

[[providers.models]]
id = "m"
capabilities = ["chat"]

[[virtual_models]]
id = "v"
capability = "chat"
strategy = "fallback"
targets = [{ model = "m" }, { model = "m" }]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(text: str, **environ: str) -> Result:
    Path("lumen.toml").write_text(text)
    return CliRunner(env=environ).invoke(command, ["-c", "lumen.toml"])


@pytest.mark.usefixtures("folder")
class TestCheck:
    def test_good_document_is_counted_in_one_line(self) -> None:
        result = check(GOOD)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == "lumen.toml: 1 provider, 1 model, 1 virtual model: ok\n"

    def test_empty_document_can_be_served(self) -> None:
        assert check("").stdout == "lumen.toml: 0 providers, 0 models, 0 virtual models: ok\n"

    def test_every_fault_is_printed_in_the_order_of_the_document(self) -> None:
        text = (
            GOOD.replace('{ model = "m" }]', '{ model = "mm" }]').replace('"openai"', '"opnai"')
            + "\n[server]\nport = 0"
        )
        result = check(text)
        assert result.exit_code == 1
        lines = result.stdout.splitlines()
        assert [line.partition(": ")[0] for line in lines] == ["lumen.toml:3", "lumen.toml:13", "lumen.toml:16"]
        assert '"mm"' in lines[1]

    def test_reference_fault_alone_refuses_the_document(self) -> None:
        result = check(GOOD.replace('{ model = "m" }]', '{ model = "nope" }]'))
        assert result.exit_code == 1
        assert result.stdout.startswith("lumen.toml:13: virtual_models[0].targets[1].model: ")

    def test_warning_is_marked_and_does_not_refuse(self) -> None:
        result = check(GOOD, LUMEN_LOG_FORMT="json")
        assert result.exit_code == 0
        first, last = result.stdout.splitlines()
        assert first == "LUMEN_LOG_FORMT: warning: is not a setting and is ignored; write LUMEN_LOG_FORMAT"
        assert last.endswith(": ok")

    def test_environment_is_checked_with_the_document(self) -> None:
        result = check(GOOD, LUMEN_SERVER__PORT="http")
        assert result.exit_code == 1
        assert result.stdout.startswith("LUMEN_SERVER__PORT: server.port: expected an integer")

    def test_missing_document_is_a_fault(self) -> None:
        result = CliRunner().invoke(command, ["-c", "nope.toml"])
        assert result.exit_code == 1
        assert result.stdout.startswith("nope.toml: cannot be read")

    def test_default_document_is_found(self, folder: Path) -> None:
        (folder / "config.toml").write_text(GOOD)
        assert CliRunner().invoke(command, []).stdout.startswith("config.toml: 1 provider")
