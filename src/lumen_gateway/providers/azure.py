"""Azure OpenAI: where a deployment answers.

The model is part of the path and the version of the API part of the query, but for Responses; body, answer and errors
are OpenAI's.
Source: Microsoft Learn, "Azure OpenAI in Microsoft Foundry Models REST API reference", read 2026-10.
"""

from __future__ import annotations

from urllib.parse import parse_qs, quote

DEFAULT_API_VERSION = "2024-10-21"  # the last stable version before the versionless /openai/v1 routes


def target(root_path: str, root_query: str, deployment: str, api_version: str | None, *, api: str = "chat") -> str:
    """Return path and query of a deployment's endpoint for chat, or of the resource's for Responses.

    Shape: `root_path` has no trailing slash. The version is the field's, else the one in the base URL, else the
           default; other query parameters of the base URL are ignored. Responses have no version, and name the
           deployment in the body.
    """
    if api == "responses":
        return f"{root_path}/openai/v1/responses"
    in_url = parse_qs(root_query).get("api-version", [""])[0]
    version = api_version or in_url or DEFAULT_API_VERSION
    path = f"{root_path}/openai/deployments/{_segment(deployment)}/chat/completions"
    return f"{path}?api-version={_segment(version)}"


def _segment(text: str) -> str:
    """Percent-encode everything but A-Z a-z 0-9 - . _ ~, slashes included."""
    return quote(text, safe="")
