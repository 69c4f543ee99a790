"""What the fields of a document mean to each other: names taken twice, addresses, keys, labels, files that
must be there.

Runs on a document whose shape is right. Virtual models, beyond the ids they take and the keys they pin, are left to
`routing/compile.py`.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import ipaddress
import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from lumen_gateway.config.schema import Config, Fault, Provider, Target
from lumen_gateway.config.wording import dotted, nearest, one_of, quoted

Path = tuple[str | int, ...]

MASTER_KEY = "LUMEN_MASTER_KEY"
NEEDS_BASE_URL = frozenset({"azure", "cloudflare", "ollama", "vllm"})  # no address that all customers share

SPOKEN = {"anthropic": ("messages",), "azure": ("chat", "responses"), "google": ("gemini",)}
"""Kinds whose addresses know no other dialects."""

SECRET_HEADERS = frozenset({"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key", "x-goog-api-key"})
OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host"}
    | {"keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"}
)
"""What the gateway writes into each call itself, or what is of one connection only (RFC 9110, 7.6.1)."""

MAX_METADATA_LABELS = 16
OTLP_EXPORTER = "opentelemetry-exporter-otlp-proto-http"
OWN_LABELS = frozenset({"capability", "direction", "estimated", "kind", "media_type", "model", "provider"})

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z").match  # POSIX, 8.1: what a shell can set
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z").match
_HOST = re.compile(r"[A-Za-z0-9._-]+\Z").match
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z").match  # RFC 9110, 5.6.2


def check_rules(config: Config) -> list[Fault]:
    """Return every broken rule between fields."""
    parts = (_tls, _labels, _collector, _probes, _names, _ids, _each_provider, _dates, _pins)
    return [fault for part in parts for fault in part(config)]


# --- the listener -----------------------------------------------------------------------------------------------------


def _tls(config: Config) -> Iterator[Fault]:
    """A listener that should speak TLS must never speak anything else, so half a setting is a fault."""
    cert, key = config.server.tls_cert_file, config.server.tls_key_file
    if cert is None and key is None:
        return
    faults = [*_tls_file("tls_cert_file", cert, "tls_key_file"), *_tls_file("tls_key_file", key, "tls_cert_file")]
    if cert is not None and key is not None and not faults and not _is_pair(cert, key):
        fix = "name PEM files that belong together: the certificate with its chain, and its key without a password"
        faults = [Fault(("server", "tls_cert_file"), "makes no usable pair with tls_key_file", fix)]
    yield from faults


def _tls_file(name: str, path: str | None, other: str) -> Iterator[Fault]:
    if path is None:
        yield Fault(("server", name), f"is missing beside {other}", "name both files, or neither for plain HTTP")
    elif not (os.path.isfile(path) and os.access(path, os.R_OK)):
        yield Fault(("server", name), "is no file that can be read", "check the path, as seen from here, and rights")


def _is_pair(cert: str, key: str) -> bool:
    import ssl  # noqa: PLC0415 - `lumen check` is quick without it, and few documents name a certificate

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        return False
    return True


# --- metric labels ----------------------------------------------------------------------------------------------------


def _labels(config: Config) -> Iterator[Fault]:
    """Source: Prometheus data model, label names."""
    path: Path = ("telemetry", "metadata_labels")
    labels = config.telemetry.metadata_labels
    if len(labels) > MAX_METADATA_LABELS:
        fix = f"keep at most {MAX_METADATA_LABELS}: each one multiplies the series"
        yield Fault(path, f"lists {len(labels)} labels", fix)
    for index, label in enumerate(labels):
        if not _LABEL(label):
            yield Fault((*path, index), f"{quoted(label)} is no metric label", "write letters, digits and _ only")
        elif label.startswith("__") or label in OWN_LABELS:
            yield Fault((*path, index), f"{quoted(label)} is a label of the gateway's own", "choose another key")
        elif label in labels[:index]:
            yield Fault((*path, index), f"{quoted(label)} is listed twice", "remove one")


# --- traces -----------------------------------------------------------------------------------------------------------


def _collector(config: Config) -> Iterator[Fault]:
    """A collector that can be addressed, and the extra it takes to send to it."""
    endpoint = config.telemetry.otlp_endpoint
    if endpoint is None:
        return
    path: Path = ("telemetry", "otlp_endpoint")
    fix = _url_fix(endpoint)
    if fix:
        yield Fault(path, "is not a usable URL", fix)
    if not _is_installed(OTLP_EXPORTER):
        fix = 'install the extra: pip install "lumen-gateway[otel]"'
        yield Fault(path, "needs OpenTelemetry, which is not installed", fix)


def _probes(config: Config) -> Iterator[Fault]:
    resilience = config.resilience
    if resilience.health_check_enabled and resilience.health_check_interval_ms == 0:
        fix = "write an integer of at least 1, or switch health_check_enabled off"
        yield Fault(("resilience", "health_check_interval_ms"), "is 0 while probes are enabled", fix)


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


# --- names ------------------------------------------------------------------------------------------------------------


def _names(config: Config) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, provider in enumerate(config.providers):
        other = first.setdefault(provider.name, index)
        path = ("providers", index, "name")
        if other != index:
            yield Fault(path, f"{quoted(provider.name)} is already the name of providers[{other}]", "rename one")
        if not provider.name.isprintable():
            yield Fault(path, f"{quoted(provider.name)} holds control characters", "remove them: it goes into headers")


def _ids(config: Config) -> Iterator[Fault]:
    """One namespace for foundation and virtual models: an id has one meaning."""
    first: dict[str, tuple[Path, str]] = {}
    for path, model_id, owner in _declared(config):
        other, other_owner = first.setdefault(model_id, (path, owner))
        if other != path:
            wrong = f"{quoted(model_id)} is declared twice: by {other_owner} and by {owner}"
            yield Fault(path, wrong, "rename one of them; upstream_id keeps the name the upstream knows")


def _declared(config: Config) -> Iterator[tuple[Path, str, str]]:
    for outer, provider in enumerate(config.providers):
        for inner, model in enumerate(provider.models):
            path = ("providers", outer, "models", inner)
            yield (*path, "id"), model.id, f"provider {quoted(provider.name)} ({dotted(path)})"
    for index, virtual in enumerate(config.virtual_models):
        yield ("virtual_models", index, "id"), virtual.id, f"virtual_models[{index}]"


# --- providers --------------------------------------------------------------------------------------------------------


def _each_provider(config: Config) -> Iterator[Fault]:
    for index, provider in enumerate(config.providers):
        path = ("providers", index)
        yield from _address(provider, path)
        yield from _credentials(provider, path)
        yield from _forwarded(provider, path)
        yield from _spoken(provider, path)


def _spoken(provider: Provider, path: Path) -> Iterator[Fault]:
    known = SPOKEN.get(provider.kind)
    for index, model in enumerate(provider.models):
        if known is not None and not set(model.apis or ()) <= set(known):
            wrong = f"names what kind {quoted(provider.kind)} does not speak"
            fix = f"write [{', '.join(map(quoted, known))}], or leave it out"
            yield Fault((*path, "models", index, "apis"), wrong, fix)


def _address(provider: Provider, path: Path) -> Iterator[Fault]:
    if provider.base_url is not None:
        fix = _url_fix(provider.base_url, query=provider.kind == "azure")
        if fix:
            yield Fault((*path, "base_url"), "is not a usable URL", fix)
    elif provider.kind in NEEDS_BASE_URL:
        fix = 'add it: base_url = "https://..."'
        yield Fault((*path, "base_url"), f"is missing: {provider.kind} has no address of its own", fix)
    if provider.api_version is not None and provider.kind != "azure":
        yield Fault((*path, "api_version"), f"means nothing to {provider.kind}", "remove it; only azure has one")


def _url_fix(url: str, *, query: bool = False) -> str:
    """Return what to change in a URL, or nothing. The URL is not repeated: a user part holds a password."""
    if not url.isprintable() or " " in url:
        return "remove the spaces"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "check the brackets and the port of its host"
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return "start it with https:// or http:// and a host"
    if "@" in parts.netloc:
        return "remove the user part; credentials belong into the environment"
    if port == 0 or not _is_host(host):
        return "check its host and port; an international name is written in its xn-- form"
    if "#" in url:
        return "remove the fragment"
    if "?" in url and not query:
        return "remove the query"
    return ""


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _HOST(host) is not None
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _credentials(provider: Provider, path: Path) -> Iterator[Fault]:
    if provider.api_key_env is not None and provider.keys:
        yield Fault((*path, "api_key_env"), "is given together with keys", "list it as one of the keys")
    labels: set[str] = set()
    for index, key in enumerate(provider.keys):
        where = (*path, "keys", index)
        if key.label in labels:
            yield Fault((*where, "label"), f"{quoted(key.label)} is already a label of this provider", "rename one")
        labels.add(key.label)
        yield from _variable(key.api_key_env, (*where, "api_key_env"))
    yield from _variable(provider.api_key_env, (*path, "api_key_env"))


def _variable(name: str | None, path: Path) -> Iterator[Fault]:
    if name == MASTER_KEY:
        yield Fault(path, f"{MASTER_KEY} guards this gateway", "name the variable that holds the provider's own key")
    elif name is not None and not _VARIABLE(name):  # not repeated: it may be the key itself
        fix = "write a name such as OPENAI_API_KEY, and put the key into that variable"
        yield Fault(path, "looks like no name of an environment variable", fix, warning=True)


def _forwarded(provider: Provider, path: Path) -> Iterator[Fault]:
    """A client's header may add to a call, not contradict it, nor carry what was meant for the gateway alone."""
    for index, name in enumerate(provider.forward_headers):
        where = (*path, "forward_headers", index)
        if not _TOKEN(name):
            yield Fault(where, f"{quoted(name)} is no header name", "write a name such as x-team")
        elif name.lower() in SECRET_HEADERS:
            fix = "remove it; the provider's own key is named in api_key_env"
            yield Fault(where, f"{quoted(name)} carries a client's credentials for this gateway", fix)
        elif name.lower() in OWN_HEADERS:
            yield Fault(where, f"{quoted(name)} is written by the gateway itself", "remove it")


def _dates(config: Config) -> Iterator[Fault]:
    for outer, provider in enumerate(config.providers):
        for inner, model in enumerate(provider.models):
            if model.release_date is not None and not _is_date(model.release_date):
                path = ("providers", outer, "models", inner, "release_date")
                yield Fault(path, f"{quoted(model.release_date)} is no day of the calendar", "write YYYY-MM-DD")


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


# --- pinned keys ------------------------------------------------------------------------------------------------------


def _pins(config: Config) -> Iterator[Fault]:
    providers = {model.id: provider for provider, model in config.models()}
    virtual = {each.id for each in config.virtual_models}
    for outer, each in enumerate(config.virtual_models):
        for inner, target in enumerate(each.targets):
            if target.key is not None:
                yield from _pin(target, providers, virtual, ("virtual_models", outer, "targets", inner, "key"))


def _pin(target: Target, providers: dict[str, Provider], virtual: set[str], path: Path) -> Iterator[Fault]:
    assert target.key is not None
    if target.model in virtual:
        fix = "pin the key where the foundation model is the target"
        yield Fault(path, f"{quoted(target.model)} is a virtual model and has no keys", fix)
        return
    provider = providers.get(target.model)
    if provider is None:
        return  # an unknown model: routing/compile.py says so
    labels = [key.label for key in provider.keys]
    if target.key in labels:
        return
    wrong = f"provider {quoted(provider.name)} has no key labelled {quoted(target.key)}"
    near = nearest(target.key, labels)
    if not labels:
        yield Fault(path, wrong, "remove it, or give the provider [[providers.keys]]")
    else:
        yield Fault(path, wrong, f"write {quoted(near)}" if near else f"write {one_of(labels)}")
