"""Probes: what is asked of whom, what the answers mean, and what a reload changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import msgspec
import pytest

from lumen_gateway.config.schema import Config, Provider, Resilience
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Origin
from lumen_gateway.simulator.clock import ManualClock
from lumen_gateway.telemetry.metrics import Metrics, render
from lumen_gateway.telemetry.probes import LOOK_AGAIN_S, Health, Probes

INTERVAL_S = 10
ON = Resilience(health_check_enabled=True, health_check_interval_ms=INTERVAL_S * 1000, connect_timeout_ms=2000)


class Answer:
    """An answer's head."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Upstreams:
    """Stands where the client stands: answers by host, each call taking a quarter of a second."""

    def __init__(self, clock: ManualClock, **answers: int | Failure | None) -> None:
        self.clock = clock
        self.answers = answers
        self.asked: list[tuple[Origin, bytes]] = []
        self.given: list[Answer] = []
        self.at_once = 0
        self.most_at_once = 0

    async def send(self, origin: Origin, payload: bytes, until: float) -> Answer:
        assert until == self.clock.monotonic() + origin.connect_timeout_s
        self.asked.append((origin, payload))
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await self.clock.sleep(0.25)
        self.at_once -= 1
        answer = self.answers[origin.host]
        if isinstance(answer, Failure):
            raise answer
        if answer is None:
            raise TimeoutError
        self.given.append(Answer(answer))
        return self.given[-1]


def provider(name: str, kind: str, base_url: str | None = None) -> Provider:
    return msgspec.convert({"name": name, "kind": kind, "base_url": base_url}, Provider)


class Bench:
    """Probes of a document that can be changed, over upstreams that answer by host."""

    def __init__(self, *providers: Provider, resilience: Resilience = ON, **answers: int | Failure | None) -> None:
        self.config = Config(providers=list(providers), resilience=resilience)
        self.clock = ManualClock()
        self.upstreams = Upstreams(self.clock, **answers)
        self.made = 0
        self.probes = Probes(lambda: self.config, self._transport, self.clock)

    def _transport(self) -> Upstreams:
        self.made += 1
        return self.upstreams

    @contextlib.asynccontextmanager
    async def running(self, for_s: float = 3.0) -> AsyncIterator[dict[str, Health]]:
        """Run for a while and hand out what was found; keep running until the block ends."""
        task = asyncio.get_running_loop().create_task(self.probes.run(), name="probes")
        await self.clock.advance(for_s)
        try:
            yield self.probes.results()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def paths(self) -> list[str]:
        return [payload.split()[1].decode() for _, payload in self.upstreams.asked]


async def test_probes_are_off_unless_the_document_asks_for_them() -> None:
    bench = Bench(provider("a", "openai", "http://a"), resilience=Resilience(), a=200)
    async with bench.running(100) as found:
        assert found == {"a": Health("unknown")}
    assert bench.made == 0


async def test_answer_of_any_status_means_up_where_no_health_path_is_known() -> None:
    bench = Bench(provider("a", "openai", "http://a:8080/v1"), a=401)
    async with bench.running() as found:
        assert found == {"a": Health("up", bench.clock.wall() - 3.0, 250.0)}
    assert bench.paths() == ["/v1"]
    assert all(answer.closed for answer in bench.upstreams.given)


@pytest.mark.parametrize(
    ("kind", "base_url", "path"),
    [
        ("vllm", "http://a:8000/v1", "/health"),
        ("vllm", "http://a:8000/v1/", "/health"),
        ("vllm", "http://a:8000/models/v1", "/models/health"),
        ("vllm", "http://a:8000", "/health"),
        ("ollama", "http://a:11434", "/api/version"),
        ("tei", "http://a/", "/health"),
    ],
)
async def test_kind_with_a_health_path_is_up_only_when_that_says_so(kind: str, base_url: str, path: str) -> None:
    bench = Bench(provider("a", kind, base_url), a=204)
    async with bench.running() as found:
        assert found["a"].status == "up"
        bench.upstreams.answers["a"] = 503
        await bench.clock.advance(INTERVAL_S)
        assert bench.probes.results()["a"].detail == f"answered 503 at {path}"
        assert bench.probes.results()["a"].status == "down"
    assert bench.paths() == [path, path]


async def test_azure_keeps_the_query_of_its_address() -> None:
    bench = Bench(provider("a", "azure", "https://a/openai?api-version=2024-10-21"), a=404)
    async with bench.running():
        assert bench.paths() == ["/openai?api-version=2024-10-21"]
    assert bench.upstreams.asked[0][0] == Origin("https", "a", 443, 2.0)


async def test_upstream_that_cannot_be_reached_is_down_and_says_why() -> None:
    refused = Failure(Kind.UNREACHABLE, "could not connect to the upstream: refused")
    bench = Bench(provider("a", "openai", "http://a"), provider("b", "groq", "http://b"), a=refused, b=None)
    async with bench.running() as found:
        assert found["a"] == Health(
            "down", bench.clock.wall() - 3.0, detail="could not connect to the upstream: refused"
        )
        assert found["b"].detail == "no answer within 2 s"
        assert found["b"].latency_ms is None


async def test_probe_sends_nothing_but_where_it_goes_and_who_asks() -> None:
    bench = Bench(provider("a", "openai", "http://a:9000/v1"), a=200)
    async with bench.running():
        [(_, payload)] = bench.upstreams.asked
    names = [line.partition(b":")[0] for line in payload.split(b"\r\n")[1:] if line]
    assert names == [b"host", b"user-agent", b"accept", b"accept-encoding", b"connection"]
    assert b"\r\nhost: a:9000\r\n" in payload


async def test_ipv6_address_is_asked_in_brackets() -> None:
    bench = Bench(provider("a", "openai", "http://[::1]:9000"))
    bench.upstreams.answers["::1"] = 200
    async with bench.running() as found:
        assert found["a"].status == "up"
    assert b"\r\nhost: [::1]:9000\r\n" in bench.upstreams.asked[0][1]


async def test_upstreams_are_asked_one_after_the_other_and_again_after_the_interval() -> None:
    names = ("a", "b", "c")
    bench = Bench(*(provider(name, "openai", f"http://{name}") for name in names), a=200, b=200, c=200)
    async with bench.running(1.0):
        assert [origin.host for origin, _ in bench.upstreams.asked] == ["a", "b", "c"]
        await bench.clock.advance(INTERVAL_S + 1)
        assert len(bench.upstreams.asked) == 6
    assert bench.upstreams.most_at_once == 1
    assert bench.made == 1


async def test_provider_without_a_base_url_stays_unknown() -> None:
    bench = Bench(provider("a", "openai"))
    async with bench.running() as found:
        assert found == {"a": Health("unknown")}
    assert bench.upstreams.asked == []


async def test_reload_forgets_what_was_found_at_another_address() -> None:
    bench = Bench(provider("a", "openai", "http://a"), provider("b", "openai", "http://b"), a=200, b=200)
    async with bench.running():
        bench.config = Config(providers=[provider("a", "openai", "http://b")], resilience=ON)
        assert bench.probes.results() == {"a": Health("unknown")}
        await bench.clock.advance(INTERVAL_S)
        assert bench.probes.results()["a"].status == "up"


async def test_reload_that_turns_probes_on_is_noticed_whatever_the_interval_was() -> None:
    bench = Bench(provider("a", "openai", "http://a"), a=200)
    bench.config = msgspec.structs.replace(bench.config, resilience=Resilience(health_check_interval_ms=0))
    async with bench.running() as found:
        assert found == {"a": Health("unknown")}
        bench.config = msgspec.structs.replace(bench.config, resilience=ON)
        await bench.clock.advance(LOOK_AGAIN_S)
        assert bench.probes.results()["a"].status == "up"


async def test_reload_that_turns_probes_off_leaves_nothing_known() -> None:
    bench = Bench(provider("a", "openai", "http://a"), a=200)
    async with bench.running():
        bench.config = msgspec.structs.replace(bench.config, resilience=Resilience(health_check_interval_ms=1000))
        await bench.clock.advance(INTERVAL_S)
        assert bench.probes.results() == {"a": Health("unknown")}
        assert len(bench.upstreams.asked) == 1


async def test_unknown_shows_its_status_alone() -> None:
    assert msgspec.json.encode({"a": Health("unknown")}) == b'{"a":{"status":"unknown"}}'


async def test_gauge_holds_up_and_down_and_leaves_out_what_is_unknown() -> None:
    bench = Bench(
        provider("a", "openai", "http://a"), provider("b", "vllm", "http://b"), provider("c", "openai"), a=200, b=500
    )
    async with bench.running():
        text = render(Metrics(lambda: ()), gauges=[bench.probes.gauge()]).decode()
    assert "# TYPE lumen_provider_up gauge\n" in text
    samples = [line for line in text.splitlines() if line.startswith("lumen_provider_up")]
    assert samples == ['lumen_provider_up{provider="a"} 1', 'lumen_provider_up{provider="b"} 0']


async def test_only_a_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lumen")
    bench = Bench(provider("a", "vllm", "http://a"), a=500)
    async with bench.running():
        await bench.clock.advance(INTERVAL_S)
        bench.upstreams.answers["a"] = 200
        await bench.clock.advance(2 * INTERVAL_S)
    assert [record.__dict__["action"] for record in caplog.records] == ["provider.down", "provider.up"]
