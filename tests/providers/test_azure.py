"""Azure puts the model into the path and the API's version into the query."""

from __future__ import annotations

import pytest

from lumen_gateway.providers import azure


def test_deployment_answers_below_the_resource_root() -> None:
    assert azure.target("", "", "gpt-4o", None) == (
        "/openai/deployments/gpt-4o/chat/completions?api-version=" + azure.DEFAULT_API_VERSION
    )
    assert azure.target("/proxy", "", "d", "v1").startswith("/proxy/openai/deployments/d/")


@pytest.mark.parametrize(
    ("field", "query", "version"),
    [
        ("2025-01-01", "api-version=2024-02-01", "2025-01-01"),
        (None, "api-version=2024-02-01", "2024-02-01"),
        (None, "other=1&api-version=2024-02-01", "2024-02-01"),
        (None, "api-version=", azure.DEFAULT_API_VERSION),
        (None, "other=1", azure.DEFAULT_API_VERSION),
    ],
)
def test_version_is_the_field_s_then_the_base_url_s_then_the_default(
    field: str | None, query: str, version: str
) -> None:
    assert azure.target("", query, "d", field).partition("?")[2] == f"api-version={version}"


@pytest.mark.parametrize(
    ("deployment", "segment"),
    [("a-Z0.9_~", "a-Z0.9_~"), ("a/b", "a%2Fb"), ("a b?c#d", "a%20b%3Fc%23d"), ("é", "%C3%A9"), ("../x", "..%2Fx")],
)
def test_deployment_is_one_segment_whatever_it_holds(deployment: str, segment: str) -> None:
    assert f"/deployments/{segment}/chat/" in azure.target("", "", deployment, None)
