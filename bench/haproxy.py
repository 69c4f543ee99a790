"""How fast the gateway is, as a share of HAProxy: the same upstream, client and core, in turn.

nginx answers with a fixed chat completion, or with a stream of 100 frames. HAProxy passes it on; so does the gateway,
through a fallback of two targets, with metrics on. Whichever is measured has core 0 to itself, everything else runs on
core 1. The two take turns, so that what else the machine does hits both; the ratio is that of the medians.

Needs `haproxy`, `nginx`, `wrk` and `taskset` (Debian packages haproxy, nginx-light, wrk, util-linux); without them
nothing is measured, and the run says so.

Goals: 0.6 on a small unstreamed chat, 0.5 on a 100-frame stream.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TOOLS = ("haproxy", "nginx", "wrk", "taskset")
ROUNDS, SECONDS, CONNECTIONS = 7, 2, 64
UNDER_TEST, ALL_ELSE = "0", "1"  # cores

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello there!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}
REQUEST = {"model": "smart", "messages": [{"role": "user", "content": "Say hello."}], "temperature": 0.5}

NGINX = """
daemon off; error_log {folder}/nginx.log; pid {folder}/nginx.pid; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000; client_body_temp_path {folder}/body;
  server {{
    listen 127.0.0.1:{port} reuseport;
    location = /v1/chat/completions {{ default_type application/json; return 200 '{small}'; }}
    location = /stream/chat/completions {{
      default_type text/event-stream; error_page 405 =200 $uri; root {folder};
    }}
  }}
}}
"""
HAPROXY = """
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend in
  bind 127.0.0.1:{port}
  default_backend upstream
backend upstream
  server nginx 127.0.0.1:{upstream}
"""
DOCUMENT = """
[[providers]]
name = "{name}"
kind = "openai"
base_url = "http://127.0.0.1:{port}/{name}"
[[providers.models]]
id = "{name}/m"
upstream_id = "m"
capabilities = ["chat"]
[[providers.models]]
id = "{name}/spare"
capabilities = ["chat"]
[[virtual_models]]
id = "{id}"
capability = "chat"
strategy = "fallback"
targets = [{{ model = "{name}/m" }}, {{ model = "{name}/spare" }}]
"""
WRK = """
wrk.method = "POST"
wrk.path = "{path}"
wrk.body = [[{body}]]
wrk.headers["Content-Type"] = "application/json"
"""


def run() -> dict[str, float]:
    """Return the two ratios; nothing, and a line on stderr, where a tool is missing."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        print(f"bench haproxy: skipped, not installed: {', '.join(missing)}", file=sys.stderr)
        return {}
    with tempfile.TemporaryDirectory(prefix="lumen-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # nginx gives up root
        upstream, proxy, gateway = (_free_port() for _ in range(3))
        _write_all(folder, upstream, proxy)
        stack.enter_context(_running(ALL_ELSE, "nginx", "-p", name, "-c", f"{name}/nginx.conf", port=upstream))
        stack.enter_context(_running(UNDER_TEST, "haproxy", "-f", f"{name}/haproxy.cfg", port=proxy))
        lumen = (str(Path(sys.executable).with_name("lumen")), "serve", "-c", f"{name}/lumen.toml")
        lumen += ("--port", str(gateway))
        stack.enter_context(_running(UNDER_TEST, *lumen, port=gateway))
        return {
            "haproxy_ratio_small": _ratio(folder / "small", proxy, gateway),
            "haproxy_ratio_stream": _ratio(folder / "stream", proxy, gateway),
        }


def _write_all(folder: Path, upstream: int, proxy: int) -> None:
    frames = [
        {**ANSWER, "object": "chat.completion.chunk", "usage": None, "choices": [choice]}
        for choice in (
            {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None},
            *[{"index": 0, "delta": {"content": f" word{n}"}, "finish_reason": None} for n in range(97)],
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        )
    ]
    usage = {**ANSWER, "object": "chat.completion.chunk", "choices": []}
    stream = "".join(f"data: {json.dumps(frame)}\n\n" for frame in (*frames, usage)) + "data: [DONE]\n\n"
    (folder / "stream").mkdir()
    (folder / "stream/chat").mkdir()
    (folder / "stream/chat/completions").write_text(stream)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=upstream, small=json.dumps(ANSWER)))
    (folder / "haproxy.cfg").write_text(HAPROXY.format(port=proxy, upstream=upstream))
    documents = [("v1", "smart"), ("stream", "smart-stream")]
    (folder / "lumen.toml").write_text(_document(documents, upstream))
    for kind, path, extra in (
        ("small", "/v1/chat/completions", {}),
        ("stream", "/stream/chat/completions", {"stream": True, "model": "smart-stream"}),
    ):
        body = json.dumps(REQUEST | extra)
        (folder / f"{kind}-direct.lua").write_text(WRK.format(path=path, body=body))
        (folder / f"{kind}-gateway.lua").write_text(WRK.format(path="/v1/chat/completions", body=body))


def _document(providers: list[tuple[str, str]], port: int) -> str:
    return "".join(DOCUMENT.format(name=name, id=id_, port=port) for name, id_ in providers)


def _ratio(kind: Path, proxy: int, gateway: int) -> float:
    """Measure the two in turn and return gateway over HAProxy, by their medians."""
    proxied, served = [], []
    for _ in range(ROUNDS):
        proxied.append(_requests_per_second(proxy, f"{kind}-direct.lua"))
        served.append(_requests_per_second(gateway, f"{kind}-gateway.lua"))
    return statistics.median(served) / statistics.median(proxied)


def _requests_per_second(port: int, script: str) -> float:
    command = ["taskset", "-c", ALL_ELSE, "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", script]
    done = subprocess.run([*command, f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=True, timeout=60)
    if "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        raise RuntimeError(f"a run with errors measures nothing:\n{done.stdout}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


@contextlib.contextmanager
def _running(core: str, *command: str, port: int) -> Iterator[None]:
    """Run a server on one core while the block lasts, from when it takes connections."""
    process = subprocess.Popen(["taskset", "-c", core, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=40)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
