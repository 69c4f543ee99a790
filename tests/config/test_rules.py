"""Rules between fields: names taken twice, addresses, keys, dates."""

from __future__ import annotations

import json
import tomllib
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.config import rules
from lumen_gateway.config.rules import check_rules
from lumen_gateway.config.schema import Config, Fault, Provider

CERTIFICATE = Path(__file__).parents[1] / "transport" / "tls" / "localhost.pem"
TWO_KEYS = """
[[providers]]
name = "a"
kind = "openai"
keys = [{ label = "main", api_key_env = "A" }, { label = "spare", api_key_env = "B" }]
models = [{ id = "m", capabilities = ["chat"] }]
[[providers]]
name = "b"
kind = "groq"
models = [{ id = "n", capabilities = ["chat"] }]
"""


def broken(text: str) -> list[Fault]:
    return check_rules(msgspec.convert(tomllib.loads(text, parse_float=Decimal), Config, builtin_types=(Decimal,)))


def only(text: str) -> tuple[str, str, str]:
    [fault] = broken(text)
    return ".".join(map(str, fault.path)), fault.message, fault.fix


def pinned(key: str, model: str = "m") -> str:
    target = f'targets = [{{ model = "{model}", key = "{key}" }}]'
    return f'{TWO_KEYS}[[virtual_models]]\nid = "v"\ncapability = "chat"\nstrategy = "single"\n{target}'


def test_provider_name_is_taken_once() -> None:
    path, message, _ = only('[[providers]]\nname = "a"\nkind = "openai"\n' * 2)
    assert (path, message) == ("providers.1.name", '"a" is already the name of providers[0]')


def test_provider_name_without_control_characters() -> None:
    path, message, _ = only('[[providers]]\nname = "a\\r\\nx: y"\nkind = "openai"')
    assert path == "providers.0.name"
    assert "\\u000d\\u000a" in message


def test_id_of_two_providers_names_both() -> None:
    path, message, _ = only(TWO_KEYS.replace('"n"', '"m"'))
    assert path == "providers.1.models.0.id"
    assert 'provider "a" (providers[0].models[0])' in message
    assert 'provider "b" (providers[1].models[0])' in message


def test_id_of_a_foundation_and_a_virtual_model_names_both() -> None:
    path, message, _ = only(pinned("main").replace('id = "v"', 'id = "n"'))
    assert path == "virtual_models.0.id"
    assert 'provider "b" (providers[1].models[0]) and by virtual_models[0]' in message


@pytest.mark.parametrize("kind", ["azure", "cloudflare", "ollama", "vllm"])
def test_kind_without_an_address_of_its_own_needs_one(kind: str) -> None:
    path, message, fix = only(f'[[providers]]\nname = "a"\nkind = "{kind}"')
    assert path == "providers.0.base_url"
    assert message == f"is missing: {kind} has no address of its own"
    assert fix.startswith("add it")


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://127.0.0.1:8000",
        "http://[::1]:8000/v1/",
        "http://[fd00::17]",
        "https://host_name.internal:443/a/b",
        "HTTPS://EXAMPLE.COM",
        "http://localhost",
    ],
)
def test_usable_base_url_is_accepted(url: str) -> None:
    assert broken(f'[[providers]]\nname = "a"\nkind = "vllm"\nbase_url = "{url}"') == []


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("api.example.com/v1", "start it with https://"),
        ("ftp://example.com", "start it with https://"),
        ("https:///v1", "start it with https://"),
        ("https://", "start it with https://"),
        ("https://user:hunter2@example.com", "remove the user part"),
        ("https://@example.com", "remove the user part"),
        ("https://example.com/v1#x", "remove the fragment"),
        ("https://example.com/v1#", "remove the fragment"),
        ("https://example.com/v1?key=hunter2", "remove the query"),
        ("https://example.com/v1?", "remove the query"),
        ("https://exa mple.com", "remove the spaces"),
        ("https://example.com/\\t", "remove the spaces"),
        ("https://${HOST}/v1", "check its host"),
        ("https://münchen.example", "check its host"),
        ("https://:8080/v1", "check its host"),
        ("http://[::1", "check the brackets"),
        ("http://[::zz]", "check"),
        ("http://example.com:http", "check the brackets and the port"),
        ("http://example.com:65536", "check the brackets and the port"),
        ("http://example.com:0", "check its host and port"),
    ],
)
def test_unusable_base_url_is_refused_without_repeating_it(url: str, fix: str) -> None:
    path, message, advice = only(f'[[providers]]\nname = "a"\nkind = "openai"\nbase_url = "{url}"')
    assert path == "providers.0.base_url"
    assert fix in advice
    assert "hunter2" not in message + advice


def test_azure_may_carry_its_version_in_the_query() -> None:
    url = "https://x.openai.azure.com?api-version=2024-10-21"
    assert broken(f'[[providers]]\nname = "a"\nkind = "azure"\nbase_url = "{url}"') == []


@given(st.text(alphabet=st.sampled_from("htps:/[]@#?%.1a \x00é"), min_size=1, max_size=20))
def test_no_base_url_raises(url: str) -> None:
    check_rules(Config(providers=[Provider(name="a", kind="openai", base_url=url)]))


def test_api_version_belongs_to_azure() -> None:
    path, message, _ = only('[[providers]]\nname = "a"\nkind = "groq"\napi_version = "1"')
    assert (path, message) == ("providers.0.api_version", "means nothing to groq")


def test_one_key_and_several_keys_exclude_each_other() -> None:
    path, message, _ = only(TWO_KEYS.replace("keys =", 'api_key_env = "C"\nkeys =', 1))
    assert (path, message) == ("providers.0.api_key_env", "is given together with keys")


def test_label_is_taken_once_within_its_provider() -> None:
    path, message, _ = only(TWO_KEYS.replace('"spare"', '"main"'))
    assert (path, message) == ("providers.0.keys.1.label", '"main" is already a label of this provider')


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (TWO_KEYS.replace('"B"', '"LUMEN_MASTER_KEY"'), "providers.0.keys.1.api_key_env"),
        (TWO_KEYS.replace('"groq"', '"groq"\napi_key_env = "LUMEN_MASTER_KEY"'), "providers.1.api_key_env"),
    ],
)
def test_master_key_is_never_sent_to_a_provider(text: str, path: str) -> None:
    assert only(text)[0] == path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Content-Length", "is written by the gateway itself"),
        ("transfer-encoding", "is written by the gateway itself"),
        ("Authorization", "carries a client's credentials for this gateway"),
        ("cookie", "carries a client's credentials for this gateway"),
        ("x team", "is no header name"),
        ("x-team:", "is no header name"),
    ],
)
def test_forwarded_header_adds_to_a_call_and_never_contradicts_it(name: str, message: str) -> None:
    text = f'[[providers]]\nname = "a"\nkind = "groq"\nforward_headers = ["X-Team", "x_y", "{name}"]'
    assert only(text)[:2] == ("providers.0.forward_headers.2", f'"{name}" {message}')


def test_interval_of_probes_may_be_0_only_while_they_are_off() -> None:
    text = "[resilience]\nhealth_check_interval_ms = 0\n"
    assert broken(text) == []
    assert only(text + "health_check_enabled = true")[0] == "resilience.health_check_interval_ms"


@pytest.mark.parametrize("key", ["sk-proj-4f9Q", "eyJh.bGci.Oi", "key with spaces", "0123abcd"])
def test_key_in_place_of_its_variable_is_warned_of_and_not_repeated(key: str) -> None:
    for text in (TWO_KEYS.replace('"B"', f'"{key}"'), TWO_KEYS.replace('"groq"', f'"groq"\napi_key_env = "{key}"')):
        [fault] = broken(text)
        assert fault.warning
        assert fault.path[-1] == "api_key_env"
        assert key not in fault.message + fault.fix


def test_release_date_is_a_day_of_the_calendar() -> None:
    text = TWO_KEYS.replace('id = "m",', 'id = "m", release_date = "2025-02-30",')
    assert only(text)[0] == "providers.0.models.0.release_date"
    assert broken(text.replace("02-30", "02-28")) == []


def test_pinned_key_that_exists_is_accepted() -> None:
    assert broken(pinned("spare")) == []


@pytest.mark.parametrize(
    ("key", "model", "message", "fix"),
    [
        ("spaer", "m", 'provider "a" has no key labelled "spaer"', 'write "spare"'),
        ("x", "m", 'provider "a" has no key labelled "x"', 'write one of "main", "spare"'),
        ("main", "n", 'provider "b" has no key labelled "main"', "give the provider [[providers.keys]]"),
        ("main", "v", '"v" is a virtual model and has no keys', "pin the key where"),
    ],
)
def test_pinned_key_that_leads_nowhere_is_refused(key: str, model: str, message: str, fix: str) -> None:
    path, said, advice = only(pinned(key, model))
    assert path == "virtual_models.0.targets.0.key"
    assert message in said
    assert fix in advice


def test_pinned_key_of_an_unknown_model_is_left_to_the_compiler() -> None:
    assert broken(pinned("main", "nope")) == []


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("a-b", '"a-b" is no metric label'),
        ("1a", '"1a" is no metric label'),
        ("", '"" is no metric label'),
        ("a\\n", '"a\\u000a" is no metric label'),
        ("__a", "is a label of the gateway's own"),
        ("model", "is a label of the gateway's own"),
        ("team", '"team" is listed twice'),
    ],
)
def test_metadata_label_is_a_label_name_of_its_own(label: str, message: str) -> None:
    path, said, _ = only(f'[telemetry]\nmetadata_labels = ["team", "{label}"]')
    assert path == "telemetry.metadata_labels.1"
    assert message in said


def test_metadata_labels_are_few() -> None:
    labels = [f"l{number}" for number in range(17)]
    assert only(f"[telemetry]\nmetadata_labels = {labels}")[1] == "lists 17 labels"
    assert broken(f"[telemetry]\nmetadata_labels = {labels[:16]}") == []


@pytest.mark.parametrize(
    "url", ["http://localhost:4318", "https://collector.example.com/v1/traces", "http://[::1]:4318/"]
)
def test_usable_collector_is_accepted(url: str) -> None:
    assert broken(f'[telemetry]\notlp_endpoint = "{url}"') == []


@pytest.mark.parametrize(
    "url", ["localhost:4318", "grpc://collector:4317", "http:///v1", "http://user:hunter2@collector"]
)
def test_unusable_collector_is_refused_without_repeating_it(url: str) -> None:
    path, message, fix = only(f'[telemetry]\notlp_endpoint = "{url}"')
    assert path == "telemetry.otlp_endpoint"
    assert url not in message + fix


def test_collector_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "OTLP_EXPORTER", "a-distribution-that-is-not-installed")
    path, _, fix = only('[telemetry]\notlp_endpoint = "http://localhost:4318"')
    assert path == "telemetry.otlp_endpoint"
    assert fix == 'install the extra: pip install "lumen-gateway[otel]"'


def served_with(**files: Path) -> list[Fault]:
    return broken("[server]\n" + "".join(f"{name} = {json.dumps(str(path))}\n" for name, path in files.items()))


def test_tls_needs_both_files_or_neither() -> None:
    assert served_with() == []
    assert served_with(tls_cert_file=CERTIFICATE, tls_key_file=CERTIFICATE) == []
    [without_key], [without_cert] = served_with(tls_cert_file=CERTIFICATE), served_with(tls_key_file=CERTIFICATE)
    assert (without_key.path, without_cert.path) == (("server", "tls_key_file"), ("server", "tls_cert_file"))
    assert without_key.message == "is missing beside tls_cert_file"


def test_tls_files_are_there_and_readable(tmp_path: Path) -> None:
    [fault] = served_with(tls_cert_file=CERTIFICATE, tls_key_file=tmp_path / "nowhere.pem")
    assert (fault.path, fault.message) == (("server", "tls_key_file"), "is no file that can be read")
    assert len(served_with(tls_cert_file=tmp_path, tls_key_file=tmp_path)) == 2


@pytest.mark.parametrize("missing", ["PRIVATE KEY", "CERTIFICATE", "nothing but noise"])
def test_tls_files_belong_together(tmp_path: Path, missing: str) -> None:
    file = tmp_path / "server.pem"
    text = CERTIFICATE.read_text()
    file.write_text("x" if missing not in text else text.replace(missing, "X"))
    [fault] = served_with(tls_cert_file=file, tls_key_file=file)
    assert (fault.path, fault.message) == (("server", "tls_cert_file"), "makes no usable pair with tls_key_file")
