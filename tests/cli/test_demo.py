"""`lumen demo` shows every strategy, says whether all went as scripted, serves on, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from lumen_gateway.cli import demo, scenes
from lumen_gateway.cli.demo import DOCUMENT, PORTS, command
from lumen_gateway.cli.scenes import Row, Seen
from lumen_gateway.config.load import read_document
from lumen_gateway.routing.compile import compile_plan

LUMEN = Path(sys.executable).with_name("lumen")
SHORT = "from lumen_gateway.cli import main, scenes; scenes.SCENES = scenes.SCENES[-2:]; main(['demo'])"
PATIENCE_S = 60


@pytest.fixture(scope="module")
def shown() -> subprocess.CompletedProcess[str]:
    return subprocess.run([LUMEN, "demo", "--once"], check=False, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    environ = os.environ | {"TMPDIR": str(tmp_path)}  # one that is killed leaves its folder
    short = (sys.executable, "-c", SHORT)
    with subprocess.Popen(short, stdout=subprocess.PIPE, text=True, env=environ) as process:
        yield process
        process.kill()


def port_of(process: subprocess.Popen[str]) -> int:
    """Read up to the invitation and return the port it names."""
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"Serving on http://127\.0\.0\.1:(\d+)", line)
        if found:
            return int(found[1])
    raise AssertionError("the demo ended without an invitation")


def ask(port: int) -> bytes:
    body = json.dumps({"model": "smart", "messages": [{"role": "user", "content": "Hello"}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        return b"".join(iter(lambda: client.recv(65536), b""))


def answer_health(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            with listener.accept()[0] as client:
                client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_document_of_the_demo_has_no_fault() -> None:
    document = read_document(DOCUMENT, {})
    assert [document.locate(fault) for fault in document.faults] == []
    assert document.config is not None
    assert compile_plan(document.config).faults == ()
    assert {model.strategy for model in document.config.virtual_models} == {"single", "fallback", "split", "switch"}


def test_document_of_the_demo_holds_the_addresses_that_are_replaced() -> None:
    config = read_document(DOCUMENT, {}).config
    assert config is not None
    assert {provider.name: provider.base_url for provider in config.providers} == {
        name: f"http://127.0.0.1:{port}/v1" for name, port in PORTS.items()
    }


def test_everything_goes_as_scripted(shown: subprocess.CompletedProcess[str]) -> None:
    rows = len(scenes.SCENES) + 1
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"{rows} of {rows} went as scripted." in shown.stdout


def test_table_fits_a_hundred_columns_and_tells_every_outcome(shown: subprocess.CompletedProcess[str]) -> None:
    assert max(map(len, shown.stdout.splitlines())) <= 100
    for said in (*scenes.FAULTS, "not called", "chat>smart>north/big", "502 LM-3003"):
        assert said in shown.stdout


def test_table_fits_eighty_columns_and_cuts_nothing_off() -> None:
    leaves, done = ("north/big", "SSE error", "SSE error"), ("south/big", "ok")
    rows = [
        Row("smart stream", Seen("chat>smart>north/big", (leaves, done), "south/big"), True, None, 162_000_000, 0.5),
        Row("smart", Seen(None, (leaves,), "502 LM-3003"), True, None, None, 0.5),
    ]
    console = Console(width=80, record=True, file=StringIO())
    console.print(demo._table(rows, narrow=True))
    shown = console.export_text()
    for said in ("chat>smart>north/big", "north/big SSE error \u00d72", "$0.000162", "502 LM-3003"):
        assert said in shown


def test_another_program_on_the_port_is_not_taken_for_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    free_port = demo._free_port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        threading.Thread(target=answer_health, args=(taken,), daemon=True).start()
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(demo, "_free_port", lambda wanted: ports.pop() if ports else free_port(wanted))
        result = CliRunner().invoke(command, ["--once"])
        taken.shutdown(socket.SHUT_RDWR)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_serves_until_interrupted_and_leaves_nothing_behind(
    running: subprocess.Popen[str], number: signal.Signals
) -> None:
    port = port_of(running)
    answer = ask(port)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"x-lumen-fallback-from: north/big\r\n" in answer
    running.send_signal(number)
    assert running.wait(PATIENCE_S) == 0
    assert not listens(port)


def test_killed_demo_takes_its_gateway_along(running: subprocess.Popen[str]) -> None:
    port = port_of(running)
    running.kill()
    deadline_s = time.monotonic() + PATIENCE_S
    while listens(port):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_what_goes_otherwise_is_shown_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = scenes.Scene("smart", (("south/big", "ok"),))
    monkeypatch.setattr(scenes, "SCENES", (wrong,))
    result = CliRunner().invoke(command, ["--once"])
    assert result.exit_code == 1
    assert "1 of 2 went as scripted." in result.output
    assert "smart>north/big" in result.output


def test_gateway_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "GATEWAY", (sys.executable, "-c", "raise SystemExit('no luck')"))
    result = CliRunner().invoke(command, ["--once"])
    assert result.exit_code == 1
    assert "the gateway did not start:\nno luck" in result.output
