"""`lumen serve`: what it refuses before it serves. What it does then is tested in `tests/process/`."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lumen_gateway.cli.serve import command


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Serving ignores SIGHUP until its keeper takes it over; put back what was there."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


def serve(folder: Path, text: str, *options: str, **environ: str) -> Result:
    path = folder / "lumen.toml"
    path.write_text(text)
    return CliRunner(env=environ).invoke(command, ["-c", str(path), *options])


def test_every_fault_of_the_document_is_told_and_nothing_is_started(tmp_path: Path) -> None:
    result = serve(tmp_path, "prot = 1\n[server]\nhots = 1\n")
    assert result.exit_code == 1
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()] == [
        f"{tmp_path}/lumen.toml:1",
        f"{tmp_path}/lumen.toml:3",
    ]


def test_taken_port_is_told_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = serve(tmp_path, "", "--port", str(port))
    assert result.exit_code == 1
    assert result.stderr == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --port or server.port\n"
    )


def test_address_of_somebody_else_is_told(tmp_path: Path) -> None:
    result = serve(tmp_path, "", "--host", "2001:db8::1", "--port", "1")
    assert result.exit_code == 1
    assert result.stderr.startswith("cannot listen on [2001:db8::1]:1: ")


def test_auth_without_its_key_is_refused_by_name(tmp_path: Path) -> None:
    result = serve(tmp_path, "[auth]\nenabled = true\n", LUMEN_MASTER_KEY="${LUMEN_MASTER_KEY}")
    assert result.exit_code == 1
    assert "LUMEN_MASTER_KEY" in result.stderr
    assert "placeholder" in result.stderr


def test_log_level_that_is_none_is_told_before_anything_starts(tmp_path: Path) -> None:
    result = serve(tmp_path, "", LUMEN_LOG="loud")
    assert result.exit_code == 1
    assert result.stderr == "LUMEN_LOG: is no log level; write one of DEBUG, INFO, WARNING, ERROR\n"


@pytest.mark.parametrize("options", [["--port", "0"], ["--workers", "0"], ["--drain", "-1"], ["--wrokers", "2"]])
def test_option_that_makes_no_sense_is_wrong_usage(tmp_path: Path, options: list[str]) -> None:
    assert serve(tmp_path, "", *options).exit_code == 2
