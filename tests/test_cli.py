"""The command `lumen`: what a bare option list means, what help costs, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from lumen_gateway import __version__
from lumen_gateway.cli import COMMANDS, main

BUILT = [
    name for name in COMMANDS if (Path(sys.modules[main.__module__].__file__ or "").parent / f"{name}.py").exists()
]


def lumen(*args: str) -> Result:
    return CliRunner().invoke(main, args, prog_name="lumen")


def test_help_lists_every_command_with_one_line() -> None:
    result = lumen("--help")
    assert result.exit_code == 0
    for name, summary in COMMANDS.items():
        assert name in result.output
        assert summary in result.output


def test_short_help_flag_is_the_same() -> None:
    assert lumen("-h").output == lumen("--help").output


def test_version_is_the_one_of_the_package() -> None:
    assert lumen("--version").output == f"lumen {__version__}\n"


@pytest.mark.parametrize("name", BUILT)
def test_command_bears_the_name_it_is_listed_under(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name


@pytest.mark.parametrize("args", [("chekc",), ("check", "--nope"), ("check", "extra"), ("--nope",), ("check", "-c")])
def test_wrong_usage_ends_with_two_and_says_so_on_stderr(args: tuple[str, ...]) -> None:
    result = lumen(*args)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


@pytest.mark.parametrize("args", [("lumen.toml",), ("check", "lumen.toml"), ("serve", "lumen.toml", "--port", "1")])
def test_document_without_its_option_is_told_of_it(args: tuple[str, ...]) -> None:
    result = lumen(*args)
    assert result.exit_code == 2
    assert "named with -c, as in: lumen check -c lumen.toml" in result.stderr


def test_unknown_command_is_told_what_there_is() -> None:
    assert "No such command 'chekc'; there are serve, check, plan, " in lumen("chekc").stderr


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Stand-ins for `serve` and `check` that note what they were called with."""
    calls: list[tuple[str, str]] = []

    def stand_in(name: str) -> click.Command:
        config = click.Option(["-c", "--config", "path"], default="")
        return click.Command(name, params=[config], callback=lambda path: calls.append((name, path)))

    monkeypatch.setattr(type(main), "get_command", lambda _self, _ctx, name: stand_in(name))
    return calls


@pytest.mark.parametrize(
    ("args", "call"),
    [
        ((), ("serve", "")),
        (("-c", "f"), ("serve", "f")),
        (("--config", "f"), ("serve", "f")),
        (("--config=f",), ("serve", "f")),
        (("serve", "-c", "f"), ("serve", "f")),
        (("--check-config",), ("check", "")),
        (("--check-config", "-c", "f"), ("check", "f")),
        (("-c", "f", "--check-config"), ("check", "f")),
        (("check", "--config=f"), ("check", "f")),
    ],
)
def test_bare_options_mean_serve_or_check(
    args: tuple[str, ...], call: tuple[str, str], ran: list[tuple[str, str]]
) -> None:
    assert lumen(*args).exit_code == 0
    assert ran == [call]


def test_command_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "fly", "Leave the ground.")
    result = lumen("fly")
    assert result.exit_code == 1
    assert result.stderr == "Error: `lumen fly` is not in this version\n"


def loaded_after(*args: str) -> set[str]:
    """Return the modules a fresh interpreter holds after one command."""
    program = (
        "import sys\n"
        "from lumen_gateway.cli import main\n"
        f"main({list(args)!r}, standalone_mode=False)\n"
        "print('--')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.rpartition("--\n")[2].split())


def test_help_imports_no_command_and_no_server() -> None:
    modules = loaded_after("--help")
    assert {name for name in modules if name.startswith("lumen_gateway")} == {"lumen_gateway", "lumen_gateway.cli"}


def test_check_imports_no_server(tmp_path: Path) -> None:
    (tmp_path / "lumen.toml").touch()
    modules = loaded_after("check", "-c", str(tmp_path / "lumen.toml"))
    assert "lumen_gateway.config.load" in modules
    assert modules.isdisjoint({"uvloop", "uvicorn", "httptools", "rich", "ssl", "lumen_gateway.gateway"})
