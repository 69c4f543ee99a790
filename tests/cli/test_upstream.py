"""`lumen upstream` serves a script until it is interrupted, and says what is wrong with a bad one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from lumen_gateway.cli.upstream import command


def call(port: int) -> bytes:
    body = b'{"model":"m","messages":[{"role":"user","content":"secret-prompt"}]}'
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret-key\r\n"
        client.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        return client.recv(65536)


def test_script_is_served_until_the_interrupt(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text('[[replies]]\nauto = "Hello."\n')
    program = "from lumen_gateway.cli import main; main()"
    arguments = [sys.executable, "-u", "-c", program, "upstream", "--script", str(script), "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline().rpartition(":")[2])
            assert b"200 OK" in call(port)
        finally:
            os.kill(process.pid, signal.SIGINT)
        output = process.stdout.read()
    assert process.returncode == 0
    assert output.splitlines() == ["POST /v1/chat/completions model=m -> 200", "1 call answered"]


def test_bad_script_is_refused_with_its_place(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text('[[replies]]\nstatus = "ok"\n')
    result = CliRunner().invoke(command, ["--script", str(script)])
    assert result.exit_code == 1
    assert "script.toml: replies[0].status: Expected `int`" in result.output


def test_taken_port_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text("[[replies]]\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(command, ["--script", str(script), "--port", str(port)])
    assert result.exit_code == 1
    assert (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --host or --port\n"
        in result.output
    )
