"""What an upstream's refusal means: which failure it is, how long it asks to be left alone.

Statuses mislead: a 400 may be a bad key, an unknown model or an unpaid bill, a 403 a content policy, a 429 a request
that no waiting will let through. So the body decides first, by codes, then by phrases of vendors' messages in lower
case, and the status where neither is known.

Source: vendors' documents, server sources and recorded traffic, state of October 2026. Vendors change texts without
notice; an entry names whose it is.
"""

from __future__ import annotations

from typing import NamedTuple

from lumen_gateway.errors import Kind
from lumen_gateway.providers.refusal_body import ErrorBody, read
from lumen_gateway.providers.waits import Lookup, wait_s

MAX_COOL_S = 300.0

_CONTEXT_CODES = frozenset(
    {
        "context_length_exceeded",  # OpenAI and most compatible
        "exceed_context_size_error",  # llama.cpp
        "too_many_prompt_tokens",  # Perplexity
        "too_many_tokens",  # Cohere
        "max_tokens_exceeded",  # TypeSafe
    }
)
_CONTEXT_PHRASES = (
    "maximum context length",  # OpenAI, DeepSeek, OpenRouter, Mistral, vLLM
    "prompt is too long",  # Anthropic, Fireworks
    "input is too long",  # Bedrock
    "too many tokens",  # Cohere
    "exceeds the maximum number of tokens",  # Gemini, Vertex
    "context window",  # OpenAI Responses
    "too large for model",  # Mistral
    "exceeds maximum length",  # Bedrock Converse
    "exceed context limit",  # Anthropic
    "available context size",  # llama.cpp
    "max context length",  # Ollama
    "model's context length",  # vLLM, SGLang
    "than the context length",  # Ollama, LM Studio
    "exceeds the context length",  # Ollama
    "maximum prompt length",  # xAI
    "reduce the length of the messages",  # Groq
    "total length of all messages",  # Perplexity
    "`max_new_tokens` must be",  # TGI, Together
    "`inputs` must have less than",  # TGI, TEI
    "while limit is",  # Cerebras
    "tokens to keep from the initial prompt",  # LM Studio
    "keep the first",  # LM Studio
    "allowed tokens per submitted batch",  # Voyage
    "single text cannot exceed",  # Jina
)
_POLICY_CODES = frozenset(
    {
        "content_filter",  # Azure
        "responsibleaipolicyviolation",  # Azure, inner code
        "content_policy_violation",  # OpenAI, OpenRouter
        "invalid_prompt",  # OpenAI
        "data_inspection_failed",  # Alibaba
    }
)
_POLICY_PHRASES = (
    "content management policy",  # Azure
    "blocked by safety",  # Gemini
    "content filtering policy",  # Anthropic
    "violates usage guidelines",  # xAI
    "content exists risk",  # DeepSeek
    "violating our usage policy",  # OpenAI
    "requires moderation",  # OpenRouter
    "inappropriate content",  # Alibaba
    "unsafe or sensitive content",  # Z.ai
)
_QUOTA_CODES = frozenset(
    {
        "insufficient_quota",  # OpenAI
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_error",  # Anthropic
        "payment_required",  # OpenRouter
        "1308",  # Z.ai
    }
)
_QUOTA_PHRASES = (
    "credit balance is too low",  # Anthropic
    "insufficient balance",  # DeepSeek
    "insufficient credits",  # OpenRouter
    "requires more credits",  # OpenRouter
    "credit limit exceeded",  # Together
    "monthly spending limit",  # xAI, Fireworks
    "doesn't have any credits",  # xAI
    "payment is past due",  # Ollama cloud
    "daily free allocation",  # Cloudflare
    "balance not enough",  # Jina
    "tokens per day",  # Groq, Bedrock
    "requests per day",  # Groq
    "perday",  # Gemini, quotaId
)
_AUTH_CODES = frozenset({"invalid_api_key", "wrong_api_key", "api_key_invalid", "authentication_error"})
_AUTH_PHRASES = ("incorrect api key", "invalid api key", "api key not valid")  # xAI, Gemini under 400
_MODEL_CODES = frozenset(
    {"model_not_found", "invalid_model", "unknown_model", "deploymentnotfound", "model_not_available"}
)
_MODEL_PHRASES = (
    "model not found",  # xAI
    "model not exist",  # DeepSeek, older
    "supported api model names",  # DeepSeek
    "supported models are",  # Voyage
    "not a valid model id",  # OpenRouter
    "unknown model",  # Azure Foundry, TypeSafe
    "no such model",  # Cloudflare
    "no models loaded",  # LM Studio
    "model identifier is invalid",  # Bedrock
    "on-demand throughput isn",  # Bedrock
)
_TOO_LARGE_FOR_MINUTE = ("request too large for",)  # OpenAI under 429, Groq under 413

_BODY_STATUSES = frozenset({400, 403, 413, 422})
_QUOTA_STATUSES = frozenset({400, 402, 403, 412, 429})
_MODEL_STATUSES = frozenset({400, 422})
_NOT_FOUND_STATUSES = frozenset({404, 405, 410})

_STATUS_OF_CODE = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "rate_limited": 429,
    "too_many_requests": 429,
    "resource_exhausted": 429,
    "insufficient_quota": 429,
    "overloaded_error": 529,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "invalid_request_error": 400,
    "badrequesterror": 400,  # vLLM
    "invalid_argument": 400,  # Gemini
}


class Refusal(NamedTuple):
    """A classified refusal: `retry_after_s` is the wait asked for, `cool_s` how long the leaf rests in any case."""

    kind: Kind
    retry_after_s: float | None = None
    cool_s: float | None = None


def classify(status: int, header: Lookup, body: bytes, wall_s: float) -> Refusal:
    """Say what an answer other than 2xx means.

    Shape: `body` may be cut, empty, or no JSON.
    Units: `wall_s` is seconds since the epoch, for waits given as dates.
    """
    seen = read(body)
    return _refusal(_kind(status, seen), header, seen, wall_s)


def classify_in_stream(payload: bytes, wall_s: float) -> Refusal:
    """Say what an error inside a 200 means: the same as with the status it tells; without one, the upstream failed."""
    seen = read(payload)
    status = seen.status or next(
        (_STATUS_OF_CODE[code] for code in sorted(seen.codes) if code in _STATUS_OF_CODE), None
    )
    if status is None:
        kind = _kind(400, seen)
        if kind is Kind.UPSTREAM_REFUSED:
            kind = Kind.UPSTREAM_ERROR
    else:
        kind = _kind(status, seen)
    return _refusal(kind, _no_header, seen, wall_s)


def _no_header(_name: bytes) -> None:
    return None


def _refusal(kind: Kind, header: Lookup, seen: ErrorBody, wall_s: float) -> Refusal:
    quota = kind in (Kind.QUOTA_LIMITED, Kind.QUOTA_EXHAUSTED)
    if not (quota or kind.row.retryable):
        return Refusal(kind)  # some vendors send Retry-After with every answer
    wait = wait_s(header, seen, wall_s)
    return Refusal(kind, wait, min(wait or MAX_COOL_S, MAX_COOL_S) if quota else None)


def _kind(status: int, seen: ErrorBody) -> Kind:
    if status >= 500:
        return Kind.UPSTREAM_ERROR
    if status == 408:
        return Kind.READ_TIMEOUT
    if _is_too_large_for_minute(status, seen):
        return Kind.RATE_TOO_SMALL
    if status in _BODY_STATUSES:
        if seen.has(_CONTEXT_CODES, _CONTEXT_PHRASES):
            return Kind.CONTEXT_LENGTH
        if seen.has(_POLICY_CODES, _POLICY_PHRASES):
            return Kind.CONTENT_FILTER
    if status == 402 or (status in _QUOTA_STATUSES and seen.has(_QUOTA_CODES, _QUOTA_PHRASES)):
        return Kind.QUOTA_LIMITED if status == 429 else Kind.QUOTA_EXHAUSTED
    if status == 429:
        return Kind.RATE_LIMITED
    if status in (401, 403) or (status == 400 and seen.has(_AUTH_CODES, _AUTH_PHRASES)):
        return Kind.AUTH_FAILED
    if status in _NOT_FOUND_STATUSES or (status in _MODEL_STATUSES and _names_unknown_model(seen)):
        return Kind.UPSTREAM_NOT_FOUND
    return Kind.UPSTREAM_REFUSED


def _is_too_large_for_minute(status: int, seen: ErrorBody) -> bool:
    if status == 413 and "rate_limit_exceeded" not in seen.codes:
        return False
    return status in (413, 429) and seen.has(frozenset(), _TOO_LARGE_FOR_MINUTE)


def _names_unknown_model(seen: ErrorBody) -> bool:
    if seen.has(_MODEL_CODES, _MODEL_PHRASES):
        return True
    return "does not exist" in seen.text and "model" in seen.text  # OpenAI images and OpenRouter, with the name between
