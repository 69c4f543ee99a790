"""The table of kinds: complete, consistent with its page, and what it makes of URLs and models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from lumen_gateway.config.schema import ProviderKind
from lumen_gateway.providers.table import KINDS, Endpoint, Kind, apis, chat_rules, endpoint, key_line
from lumen_gateway.redact import Secret

PAGE = Path(__file__).parents[2] / "docs" / "providers.md"

SPEAKING_ANOTHER_DIALECT = {
    "bedrock",
    "cohere",
    "google",
    "jina",
    "mixedbread",
    "nvidia",
    "pinecone",
    "tei",
    "typesafe",
    "vertex_ai",
    "voyage",
}  # fmt: skip - two lines of names


def test_every_kind_of_the_schema_is_a_row_or_speaks_another_dialect() -> None:
    assert set(get_args(ProviderKind)) == set(KINDS) | SPEAKING_ANOTHER_DIALECT


def documented() -> dict[str, tuple[str, str, str]]:
    """Return kind -> base URL, key, differences as the page's table has them."""
    rows = re.findall(r"^\| `(\w+)` \|([^|]+)\|([^|]+)\|([^|]*)\|$", PAGE.read_text(), re.MULTILINE)
    return {name: (url.strip(), key.strip(), differs.strip()) for name, url, key, differs in rows}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_page_says_what_the_row_says(kind: Kind) -> None:
    url, key, differs = documented()[kind.name]
    assert url == (f"`{kind.base_url}`" if kind.base_url else "required")
    assert key == ("optional" if kind.keyless else "required")
    assert ("`api-key` header" in differs) is (kind.key_header == "api-key")
    assert ("`stream_options.include_usage` is not sent" in differs) is not kind.include_usage
    assert ("repair is on" in differs) is kind.repair
    assert ("only `max_tokens`" in differs) is (kind.max_tokens_field == "max_tokens")
    assert ("`max_completion_tokens` for reasoning models" in differs) is kind.reasoning_models


def test_page_lists_nothing_that_is_not_in_the_table() -> None:
    assert set(documented()) == set(KINDS)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.values() if kind.base_url and "chat" in kind.apis], ids=lambda kind: kind.name
)
def test_default_address_is_encrypted_and_complete(kind: Kind) -> None:
    found = endpoint(kind, None, "m")
    assert (found.scheme, found.port) == ("https", 443)
    assert found.path.endswith("/chat/completions")


def test_each_api_has_its_own_path_below_the_root() -> None:
    assert endpoint(KINDS["anthropic"], None, "m", api="messages").path == "/v1/messages"
    assert endpoint(KINDS["vllm"], "http://h:1/v1", "m", api="messages").path == "/v1/messages"
    assert endpoint(KINDS["ollama"], "http://h:1", "m", api="messages").path == "/v1/messages"


def test_gemini_has_model_and_manner_in_its_path() -> None:
    google = KINDS["google"]
    path = "/v1beta/models/gemini-2.5-pro:"
    assert endpoint(google, None, "gemini-2.5-pro", api="gemini").path == path + "generateContent"
    streamed = endpoint(google, "http://h:1/", "gemini-2.5-pro", api="gemini", stream=True)
    assert streamed.path == path + "streamGenerateContent?alt=sse"
    assert endpoint(google, None, "a/b?c", api="gemini").path == "/v1beta/models/a%2Fb%3Fc:generateContent"


def test_streams_of_others_have_no_path_of_their_own() -> None:
    assert endpoint(KINDS["openai"], None, "m", stream=True) == endpoint(KINDS["openai"], None, "m")


def test_google_takes_its_key_in_a_header_of_its_own() -> None:
    assert key_line(KINDS["google"], Secret("AIza-1")).reveal() == b"x-goog-api-key: AIza-1\r\n"


def test_anthropic_takes_its_key_in_a_header_of_its_own() -> None:
    assert key_line(KINDS["anthropic"], Secret("sk-1")).reveal() == b"x-api-key: sk-1\r\n"


@pytest.mark.parametrize(
    ("kind", "base_url", "spoken"),
    [
        ("openai", None, ("chat", "responses")),
        ("openai", "https://api.openai.com/v1", ("chat", "responses")),
        ("openai", "http://imitator/v1", ("chat",)),
        ("azure", "https://x.openai.azure.com", ("chat", "responses")),
        ("anthropic", None, ("messages",)),
        ("vllm", "http://h", ("chat",)),
    ],
)
def test_responses_are_spoken_where_openai_serves_them(
    kind: str, base_url: str | None, spoken: tuple[str, ...]
) -> None:
    assert apis(KINDS[kind], base_url) == spoken


def test_responses_have_a_path_of_their_own_which_azure_gives_no_version() -> None:
    assert endpoint(KINDS["openai"], None, "m", api="responses").path == "/v1/responses"
    azure = endpoint(KINDS["azure"], "https://res.openai.azure.com/", "deployment", "v9", api="responses")
    assert azure.path == "/openai/v1/responses"


@pytest.mark.parametrize(
    ("kind", "base_url", "expected"),
    [
        ("openai", None, Endpoint("https", "api.openai.com", 443, "/v1/chat/completions")),
        ("openai", "http://[::1]:8080/v1/", Endpoint("http", "::1", 8080, "/v1/chat/completions")),
        ("vllm", "http://localhost:8000", Endpoint("http", "localhost", 8000, "/chat/completions")),
        ("vllm", "http://HOST/a/b//", Endpoint("http", "host", 80, "/a/b/chat/completions")),
        ("ollama", "http://localhost:11434", Endpoint("http", "localhost", 11434, "/v1/chat/completions")),
        ("groq", "https://proxy:443/x", Endpoint("https", "proxy", 443, "/x/chat/completions")),
    ],
)
def test_base_url_leads_to_the_endpoint(kind: str, base_url: str | None, expected: Endpoint) -> None:
    assert endpoint(KINDS[kind], base_url, "model") == expected


def test_azure_takes_root_version_and_deployment() -> None:
    found = endpoint(KINDS["azure"], "https://res.openai.azure.com/?api-version=2024-02-01", "my model", None)
    assert found.host == "res.openai.azure.com"
    assert found.path == "/openai/deployments/my%20model/chat/completions?api-version=2024-02-01"
    assert endpoint(KINDS["azure"], "https://res.openai.azure.com", "d", "v9").path.endswith("?api-version=v9")


@pytest.mark.parametrize(
    ("kind", "base_url", "said"),
    [
        ("vllm", None, 'kind "vllm" needs a base_url'),
        ("openai", "api.openai.com/v1", "http:// or https://"),
        ("openai", "ftp://host", "http:// or https://"),
        ("openai", "https:///v1", "name a host"),
        ("openai", "https://user:pw@host", "no user name"),
        ("openai", "https://host/#x", "no fragment"),
        ("openai", "https://host/v1?key=1", "no query"),
        ("openai", "https://host:99999", "Port"),
        ("openai", "https://[::1", "IPv6"),
    ],
)
def test_base_url_that_leads_nowhere_is_refused(kind: str, base_url: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        endpoint(KINDS[kind], base_url, "m")


@pytest.mark.parametrize(
    ("found", "authority"),
    [
        (Endpoint("https", "h", 443, "/"), "h"),
        (Endpoint("http", "h", 80, "/"), "h"),
        (Endpoint("https", "h", 80, "/"), "h:80"),
        (Endpoint("http", "::1", 80, "/"), "[::1]"),
        (Endpoint("http", "::1", 8080, "/"), "[::1]:8080"),
    ],
)
def test_authority_names_the_port_only_where_it_is_not_the_scheme_s(found: Endpoint, authority: str) -> None:
    assert found.authority == authority


@pytest.mark.parametrize(
    "model",
    ["o1", "o1-mini", "o3", "o4-mini-2025-04-16", "gpt-5", "gpt-5.6-sol", "gpt-6", "gpt-10-mini", "ft:o4-mini:org::id"],
)
@pytest.mark.parametrize("kind", ["openai", "azure"])
def test_reasoning_models_get_max_completion_tokens(kind: str, model: str) -> None:
    assert chat_rules(KINDS[kind], None, model).max_tokens_field == "max_completion_tokens"


@pytest.mark.parametrize(
    ("kind", "model", "field"),
    [
        ("openai", "gpt-4o", None),
        ("openai", "gpt-4.1-nano", None),
        ("openai", "omni-moderation", None),
        ("openai", "chatgpt-4o-latest", None),
        ("openrouter", "openai/gpt-5", None),
        ("groq", "gpt-5", None),
        ("mistral", "mistral-small", "max_tokens"),
        ("deepseek", "deepseek-chat", "max_tokens"),
        ("ollama", "gpt-5", "max_tokens"),
    ],
)
def test_other_models_keep_the_client_s_field_unless_the_host_knows_one_only(
    kind: str, model: str, field: str | None
) -> None:
    assert chat_rules(KINDS[kind], None, model).max_tokens_field == field


@pytest.mark.parametrize(
    ("kind", "base_url", "developer"),
    [
        ("openai", None, True),
        ("openai", "https://api.openai.com/v1", True),
        ("openai", "https://API.OPENAI.COM:443/v1", True),
        ("openai", "https://eu.api.openai.com.evil.test/v1", False),
        ("openai", "http://localhost/api.openai.com", False),
        ("azure", "https://x.openai.azure.com", False),
        ("vllm", "https://api.openai.com/v1", False),
    ],
)
def test_developer_role_goes_to_openai_s_own_host_only(kind: str, base_url: str | None, developer: bool) -> None:
    assert chat_rules(KINDS[kind], base_url, "m").developer is developer


def test_usage_is_not_asked_of_mistral() -> None:
    assert not chat_rules(KINDS["mistral"], None, "m").include_usage
    assert chat_rules(KINDS["vllm"], None, "m").include_usage


def test_key_goes_into_the_kind_s_header_and_is_not_shown() -> None:
    line = key_line(KINDS["openai"], Secret("sk-1"))
    assert line.reveal() == b"authorization: Bearer sk-1\r\n"
    assert key_line(KINDS["azure"], Secret("k")).reveal() == b"api-key: k\r\n"
    assert "sk-1" not in repr(line)
