"""What the document may say: every table and field, its type, range, default and unit.

These structs are the single declaration. `check.py` walks them to report every fault at once, the docs test compares
`docs/configuration.md` with them, and the rest of the gateway reads them frozen. Unknown keys are refused everywhere.

A field marked `UNBUILT` belongs to the contract but not to this version: a document that uses it is refused by name, so
that nothing is ever served open, unpriced or unbudgeted by surprise.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

UNBUILT = Meta(extra={"unbuilt": True})


def unbuilt_values(*values: str) -> Meta:
    """Mark single values of a field as `UNBUILT`."""
    return Meta(extra={"unbuilt_values": values})


PositiveInt = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]
IdleMilliseconds = Annotated[int, Meta(ge=0, le=86_400_000)]  # 0 is refused only while what it times is enabled
Text = Annotated[str, Meta(min_length=1, pattern=r"\S")]
Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:/-]+\Z")]
Unspaced = Annotated[str, Meta(pattern=r"^\S+\Z")]
Date = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")]
PATTERNS = {
    r"\S": "something other than spaces",
    r"^[A-Za-z0-9._:/-]+\Z": "only letters, digits and . _ : / -",
    r"^\S+\Z": "it without spaces",
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z": 'a date such as "2025-01-31"',
}
"""What each pattern asks for, as the object of "write"."""
Price = Decimal | Annotated[int, Meta(ge=0)]  # msgspec takes no range on a Decimal: check.py holds it to the same

Capability = Annotated[
    Literal["chat", "embed", "rerank", "decisions", "systemone"],  # systemone: old spelling of decisions
    unbuilt_values("embed", "rerank", "decisions", "systemone"),
]
Api = Annotated[
    Literal["chat", "responses", "messages", "gemini", "converse", "cohere"],
    unbuilt_values("converse", "cohere"),
]
Strategy = Literal["single", "fallback", "split", "switch"]
TriggerName = Literal[
    "provider_error",
    "rate_limited",
    "timeout",
    "circuit_open",
    "context_length",
    "content_filter",
    "auth_error",
    "quota_exhausted",
    "not_found",
    "malformed",
    "empty_answer",
    "any_error",
]
ProviderKind = Literal[
    "openai",
    "azure",
    "mistral",
    "ollama",
    "vllm",
    "groq",
    "together",
    "fireworks",
    "deepseek",
    "openrouter",
    "perplexity",
    "xai",
    "deepinfra",
    "huggingface",
    "cloudflare",
    "anthropic",
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
]
UNBUILT_KINDS = unbuilt_values(
    "bedrock",
    "cohere",
    "jina",
    "mixedbread",
    "nvidia",
    "pinecone",
    "tei",
    "typesafe",
    "vertex_ai",
    "voyage",
)


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A TOML table: frozen, unknown keys refused."""


class Server(Table, frozen=True):
    """`[server]`: where we listen and how long and how much we put up with. Restart to change."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535)] = 8080
    body_limit: PositiveInt = 33_554_432  # bytes, after decoding; Anthropic's own limit is 32 MiB
    max_event_bytes: PositiveInt = 16_777_216  # one stream event or line from an upstream
    first_token_timeout_ms: Milliseconds = 30_000  # streams: from the call to the first output
    response_timeout_ms: Milliseconds = 600_000  # unstreamed: the whole answer
    stream_idle_timeout_ms: Milliseconds = 60_000  # silence between two frames
    sse_heartbeat_ms: Milliseconds = 15_000  # below every idle timer found on the way
    early_headers: bool = True
    public_metrics: bool = False
    admin_host: Annotated[Text | None, UNBUILT] = None
    admin_port: Annotated[int | None, UNBUILT] = None
    tls_cert_file: Text | None = None  # PEM chain, the server's own first; with the key, the listener speaks TLS
    tls_key_file: Text | None = None


class Auth(Table, frozen=True):
    """`[auth]`: virtual keys and the rows they need. Nothing else here matters while it is not enabled."""

    enabled: Annotated[bool, UNBUILT] = False
    db_path: str = "lumen.db"
    flush_interval_ms: IdleMilliseconds = 10_000
    retention_days: Count = 30
    usage_channel_capacity: Count = 10_000
    usage_batch_max: Count = 500
    usage_flush_ms: IdleMilliseconds = 2_000


class Telemetry(Table, frozen=True):
    """`[telemetry]`: labels of metrics, and where spans go."""

    metadata_labels: list[str] = []  # keys of the metadata header that become labels of token metrics
    otlp_endpoint: Text | None = None  # OTLP over HTTP; needs the extra "otel"


class Tokenizer(Table, frozen=True):
    """`[tokenizer]`: how tokens are counted when an upstream reports none."""

    mode: Annotated[Literal["heuristic", "accurate"], unbuilt_values("accurate")] = "heuristic"


class Resilience(Table, frozen=True):
    """`[resilience]`: retries, breaker, deadlines."""

    retry_max_attempts: PositiveInt = 3  # tries per leaf, the first included
    retry_base_ms: Milliseconds = 200
    retry_max_ms: Milliseconds = 5_000
    circuit_failure_threshold: PositiveInt = 5
    circuit_cooldown_ms: Milliseconds = 30_000
    connect_timeout_ms: Milliseconds = 5_000
    total_timeout_ms: Milliseconds = 600_000
    health_check_enabled: bool = False  # probes show whether an upstream is up; they never route
    health_check_interval_ms: IdleMilliseconds = 30_000


class Overrides(Table, frozen=True):
    """`overrides`: fields of the request to set, fill in, or drop. Content is checked by `routing/overrides.py`."""

    set: dict[str, Any] = {}
    default: dict[str, Any] = {}
    drop: list[str] = []


class Preset(Table, frozen=True):
    """`preset` of a virtual chat model: applied when it is the requested id."""

    system_prompt: Text | None = None
    system_prompt_mode: Literal["prepend", "replace", "if_absent"] = "prepend"
    overrides: Overrides | None = None


class Target(Table, frozen=True):
    """One entry of `targets`. `when` is checked by `routing/when.py`."""

    model: Text
    key: Text | None = None
    weight: Annotated[int, Meta(ge=1, le=4_294_967_295)] | None = None
    when: dict[str, Any] | None = None
    overrides: Overrides | None = None
    remap: Annotated[dict[str, Any] | None, UNBUILT] = None


class VirtualModel(Table, frozen=True):
    """`[[virtual_models]]`: an id that carries routing logic."""

    id: Identifier
    capability: Capability
    strategy: Strategy
    targets: list[Target]
    fallback_on: list[TriggerName] | None = None
    preset: Preset | None = None
    commit: Literal["first_output", "complete"] = "first_output"
    description: Text | None = None
    listed: bool = True


class Model(Table, frozen=True):
    """`[[providers.models]]`: a foundation model, a plain upstream binding."""

    id: Identifier
    capabilities: Annotated[list[Capability], Meta(min_length=1)]
    upstream_id: Text | None = None  # what is sent upstream; default: the id
    modalities: list[str] = field(default_factory=lambda: ["text"])
    apis: Annotated[list[Api], Meta(min_length=1)] | None = None
    stream: bool = True  # false: this leaf cannot stream
    context_length: PositiveInt | None = None  # tokens
    max_output_tokens: PositiveInt | None = None
    cost_per_1m_input: Price | None = None  # USD
    cost_per_1m_output: Price | None = None
    cost_per_1m_cached_input: Price | None = None
    cost_per_1m_cache_write: Price | None = None
    cost_per_1k_searches: Price | None = None
    release_date: Date | None = None


class ProviderKey(Table, frozen=True):
    """`[[providers.keys]]`: one of several credentials of a provider."""

    label: Text
    api_key_env: Text
    weight: Annotated[int, Meta(ge=1, le=4_294_967_295)] = 1


class Provider(Table, frozen=True):
    """`[[providers]]`: a configured upstream."""

    name: Text
    kind: Annotated[ProviderKind, UNBUILT_KINDS]
    api_key_env: Text | None = None  # name of the environment variable that holds the key
    keys: list[ProviderKey] = []
    base_url: Text | None = None
    api_version: Unspaced | None = None  # azure only
    decisions_path: Annotated[str | None, UNBUILT] = None
    forward_unknown_fields: Annotated[bool | None, UNBUILT] = None
    forward_headers: list[Text] = []  # further client headers sent upstream
    first_token_timeout_ms: Milliseconds | None = None
    response_timeout_ms: Milliseconds | None = None
    stream_idle_timeout_ms: Milliseconds | None = None
    total_timeout_ms: Milliseconds | None = None
    connect_timeout_ms: Milliseconds | None = None
    strict: bool = False
    repair: bool | None = None  # default: on for kinds known to deviate
    models: list[Model] = []


class Config(Table, frozen=True):
    """The whole document."""

    config_source: Annotated[Literal["file", "db"], unbuilt_values("db")] = "file"
    log_format: Literal["pretty", "json"] = "pretty"
    prices: Annotated[Literal["config", "auto"], unbuilt_values("auto")] = "config"
    server: Server = Server()
    auth: Auth = Auth()
    telemetry: Telemetry = Telemetry()
    tokenizer: Tokenizer = Tokenizer()
    resilience: Resilience = Resilience()
    storage: Annotated[dict[str, Any] | None, UNBUILT] = None
    image_fetch: Annotated[dict[str, Any] | None, UNBUILT] = None
    webhooks: Annotated[dict[str, Any] | None, UNBUILT] = None
    usage_events: Annotated[dict[str, Any] | None, UNBUILT] = None
    agents: Annotated[list[dict[str, Any]] | None, UNBUILT] = None
    providers: list[Provider] = []
    virtual_models: list[VirtualModel] = []

    def models(self) -> list[tuple[Provider, Model]]:
        """Return every foundation model with its provider, in document order."""
        return [(provider, model) for provider in self.providers for model in provider.models]


class Fault(msgspec.Struct, frozen=True):
    """One thing wrong with a document.

    `path` leads to the offending key or value, such as `("virtual_models", 0, "targets", 1, "model")`. `message` says
    what is wrong, `fix` what to write instead. `warning` faults never refuse a document. `positions.py` turns the path
    into a line.
    """

    path: tuple[str | int, ...]
    message: str
    fix: str = ""
    warning: bool = False
