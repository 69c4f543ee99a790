"""Every kind of upstream, one row each: what it speaks, address, key header, and where it differs.

A new compatible provider is a row here, its name in `config/schema.py` and a line in docs/providers.md; a kind that
behaves differently gets a module of its own (`azure.py`). Rows hold plain values; configuration is handed in.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote, urlsplit

import msgspec

from lumen_gateway.dialects.chat import ChatRules
from lumen_gateway.providers import azure
from lumen_gateway.redact import Secret

_PORTS = {"http": 80, "https": 443}
_OPENAI_HOST = "api.openai.com"
PATHS = {
    "chat": "/chat/completions",
    "responses": "/responses",
    "messages": "/messages",
    "gemini": "/models/{model}:generateContent",
}
"""What is spoken -> path of it, below the base URL and the kind's root."""
STREAM_PATHS = {"gemini": "/models/{model}:streamGenerateContent?alt=sse"}
"""The same for streams, where that is another path."""
COUNT_PATH = "/count_tokens"
"""Where whoever speaks Messages counts the tokens of a request, below the path of that."""
DEFAULT_FIELDS = {"messages": ((b"anthropic-version", b"2023-06-01"),)}
"""What is spoken -> header fields it needs, sent unless the client's own take their place."""


class Kind(msgspec.Struct, frozen=True):
    """What differs between upstreams of one wire format."""

    name: str
    base_url: str | None = None  # None: the document must name one
    keyless: bool = False  # works without a key
    key_header: Literal["authorization", "api-key", "x-api-key", "x-goog-api-key"] = "authorization"
    apis: tuple[str, ...] = ("chat",)  # what it speaks, where a model does not say
    root: str = ""  # of every path, below the base URL
    include_usage: bool = True  # takes stream_options.include_usage
    repair: bool = False  # deviates from the dialect, see dialects/chat_repair.py
    max_tokens_field: str | None = None  # the only one it honours, for every model
    reasoning_models: bool = False  # serves OpenAI's own models, some of which refuse `max_tokens`


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("openai", "https://api.openai.com/v1", reasoning_models=True),
        Kind("azure", key_header="api-key", apis=("chat", "responses"), reasoning_models=True),
        # Answers 422 "extra_forbidden" to stream_options.include_usage (openai-agents-python 442) and to
        # max_completion_tokens (OpenOats 319); reports usage unasked. A recorded stream has a tool call without index.
        Kind("mistral", "https://api.mistral.ai/v1", include_usage=False, repair=True, max_tokens_field="max_tokens"),
        # Its server knows max_tokens only (openai/openai.go, ChatCompletionRequest); the base URL is the server's root.
        Kind("ollama", keyless=True, root="/v1", max_tokens_field="max_tokens"),
        Kind("vllm", keyless=True),
        Kind("groq", "https://api.groq.com/openai/v1"),
        Kind("together", "https://api.together.xyz/v1"),
        Kind("fireworks", "https://api.fireworks.ai/inference/v1"),
        # Ignores max_completion_tokens: the client's limit would be lost in silence (earendil-works/pi 8018).
        Kind("deepseek", "https://api.deepseek.com/v1", max_tokens_field="max_tokens"),
        Kind("openrouter", "https://openrouter.ai/api/v1"),
        Kind("perplexity", "https://api.perplexity.ai"),
        Kind("xai", "https://api.x.ai/v1"),
        Kind("deepinfra", "https://api.deepinfra.com/v1/openai"),
        Kind("huggingface", "https://router.huggingface.co/v1"),
        Kind("cloudflare"),
        Kind("anthropic", "https://api.anthropic.com", key_header="x-api-key", apis=("messages",), root="/v1"),
        Kind(
            "google",
            "https://generativelanguage.googleapis.com",
            key_header="x-goog-api-key",
            apis=("gemini",),
            root="/v1beta",
        ),
    )
}

# o1, o3-mini, o4-mini, gpt-5, gpt-5.1-..., and what comes after; also as `ft:` fine-tunes. They answer `max_tokens`
# with 400 "unsupported_parameter". On Azure this reads the deployment's name, which the operator chose.
_REASONING_MODEL = re.compile(r"(ft:)?(o[1-9]|gpt-([5-9]|[1-9][0-9]))")


def chat_rules(kind: Kind, base_url: str | None, upstream_id: str, *, strict: bool = False) -> ChatRules:
    """Return how this upstream wants the fields on which compatible servers differ, for one model."""
    field = kind.max_tokens_field
    if kind.reasoning_models and _REASONING_MODEL.match(upstream_id):
        field = "max_completion_tokens"
    return ChatRules(
        include_usage=kind.include_usage,
        developer=_is_openai(kind, base_url),
        max_tokens_field=field,
        strict=strict,
    )


def apis(kind: Kind, base_url: str | None) -> tuple[str, ...]:
    """Return what is spoken there where a model does not say. Of its imitators few know more than OpenAI's chat."""
    return ("chat", "responses") if _is_openai(kind, base_url) else kind.apis


def _is_openai(kind: Kind, base_url: str | None) -> bool:
    return kind.name == "openai" and urlsplit(base_url or kind.base_url or "").hostname == _OPENAI_HOST


class Endpoint(msgspec.Struct, frozen=True):
    """Where a model's calls go. `path` includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The Host header: brackets around IPv6, the port unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def endpoint(
    kind: Kind,
    base_url: str | None,
    upstream_id: str,
    api_version: str | None = None,
    *,
    api: str = "chat",
    stream: bool = False,
) -> Endpoint:
    """Return where calls for a model go that speak `api`; `stream`: those that ask for a stream.

    Raises: ValueError that says what is wrong with the base URL.
    """
    url = base_url or kind.base_url
    if url is None:
        raise ValueError(f'kind "{kind.name}" needs a base_url')
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("base_url must start with http:// or https:// and name a host")
    if parts.username is not None or parts.fragment:
        raise ValueError("base_url must hold no user name and no fragment; keys belong into api_key_env")
    root = parts.path.rstrip("/")
    if kind.name == "azure":
        path = azure.target(root, parts.query, upstream_id, api_version, api=api)
    elif parts.query:
        raise ValueError("base_url must hold no query")
    else:
        path = root + kind.root + _path(api, upstream_id, stream=stream)
    port = _PORTS[parts.scheme] if parts.port is None else parts.port
    return Endpoint(parts.scheme, parts.hostname, port, path)


def _path(api: str, upstream_id: str, *, stream: bool) -> str:
    path = STREAM_PATHS.get(api, PATHS[api]) if stream else PATHS[api]
    return path.replace("{model}", quote(upstream_id, safe=""))


def key_line(kind: Kind, key: Secret) -> Secret:
    """Return the header line that carries a key, line end included."""
    if kind.key_header != "authorization":
        return Secret(kind.key_header.encode() + b": " + key.reveal() + b"\r\n")
    return Secret(b"authorization: Bearer " + key.reveal() + b"\r\n")
