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
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.process import LUMEN, free_port, running

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
        upstream, proxy, gateway = (free_port() for _ in range(3))
        _write_all(folder, upstream, proxy)
        nginx = ("nginx", "-p", name, "-c", f"{name}/nginx.conf")
        haproxy = ("haproxy", "-f", f"{name}/haproxy.cfg")
        lumen = (LUMEN, "serve", "-c", f"{name}/lumen.toml", "--port", str(gateway))
        stack.enter_context(running("taskset", "-c", ALL_ELSE, *nginx, port=upstream))
        stack.enter_context(running("taskset", "-c", UNDER_TEST, *haproxy, port=proxy))
        stack.enter_context(running("taskset", "-c", UNDER_TEST, *lumen, port=gateway))
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
    command.append(f"http://127.0.0.1:{port}")
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    if "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        raise RuntimeError(f"a run with errors measures nothing:\n{done.stdout}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])
