"""START HERE: one request, from first byte to last.

    serve            which endpoint
      _ask           parse -> route -> admit -> run -> answer -> record
        _route       the id's plan, its preset, its attempts, minus those that cannot take the request
        _chat        one JSON answer, or an event stream: held back to its commit, then relayed
        _count       how many tokens a request has, and no answer to it
      _refuse        an error, as a status before the commit, as a frame after it

Everything that depends on the document stands in a `Snapshot`, taken once per request, so a reload never mixes two
documents inside one. What a failure means is in `errors.py`, which target is next in `routing/plan.py`, how often and
how long in `execution/`, and how an answer looks on the wire in `respond.py`.
"""

from __future__ import annotations

import asyncio
import re
import urllib.parse
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from lumen_gateway import respond
from lumen_gateway.accounting.ledger import Admission, Ledger
from lumen_gateway.call import Call
from lumen_gateway.clock import Clock
from lumen_gateway.config.schema import Server
from lumen_gateway.dialects.trace_context import Fields
from lumen_gateway.dialects.wire import CHAT, MESSAGES, RESPONSES, ClientRequest, Dialect
from lumen_gateway.errors import Failure, Kind, invalid
from lumen_gateway.execution.breaker import BreakerPolicy
from lumen_gateway.execution.commit import OpenStream, StreamedChat
from lumen_gateway.execution.counting import TokenCount
from lumen_gateway.execution.exchange import BufferedChat, Trace, Transport
from lumen_gateway.execution.executor import Exchange, Executor, Job
from lumen_gateway.execution.heartbeat import Heartbeat
from lumen_gateway.execution.leaf import Leaf
from lumen_gateway.execution.relay import final_event, relay
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.records import ANONYMOUS, Recorder, RequestRecord
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.facts.metadata import read_metadata
from lumen_gateway.routing.plan import Attempt, Entry, Plan, without
from lumen_gateway.routing.presets import prompted
from lumen_gateway.telemetry import log
from lumen_gateway.telemetry.metrics import State


class Snapshot(msgspec.Struct, frozen=True):
    """One document, compiled: what a request needs of it."""

    hash: str
    plan: Plan
    leaves: Mapping[str, Leaf]
    server: Server
    retry: RetryPolicy
    breaker: BreakerPolicy
    models: bytes  # the answer of GET /v1/models
    model: Mapping[str, bytes]  # id -> the answer of GET /v1/models/{id}


class RequestTrace(Trace, Protocol):
    """One request's spans, growing with it."""

    def finish(self) -> None:
        """Close and hand over every span: the request's record is complete."""
        ...


class Tracer(Protocol):
    """Where requests become spans."""

    def begin(self, record: RequestRecord, headers: Fields, leaves: Mapping[str, Leaf]) -> RequestTrace:
        """Open a request's span, in the client's own trace if its headers carry one."""
        ...

    def close(self) -> None:
        """Send what waits, within seconds."""
        ...


class Routed(msgspec.Struct):
    """A request that knows where it may go."""

    snapshot: Snapshot
    call: Call
    dialect: Dialect
    request: ClientRequest
    entry: Entry
    attempts: tuple[Attempt, ...]
    record: RequestRecord
    total_at_s: float  # monotonic
    trace: RequestTrace | None

    def job(self, exchange: Exchange[T], admission: Admission) -> Job[T]:
        """Return the executor's part of the request."""
        snapshot = self.snapshot
        return Job(
            self.attempts,
            snapshot.leaves,
            exchange,
            self.total_at_s,
            self.record.attempts,
            admission,
            snapshot.retry,
            snapshot.breaker,
        )


class Telemetry(Recorder, Protocol):
    """Where requests are counted and shown."""

    def metadata_rejected(self) -> None:
        """A metadata header was dropped."""
        ...

    def answered(self, method: str, template: str, status: int, seconds: float) -> None:
        """An HTTP answer was sent, on whatever route."""
        ...

    def state(self) -> State:
        """Return everything counted so far, for the keeper."""
        ...


T = TypeVar("T")
Answering = Callable[[Routed, Admission], Coroutine[Any, Any, None]]
Route = Callable[[Call], Coroutine[Any, Any, None] | None]
_JSON_MEDIA = re.compile(rb"application/([\w.+-]+\+)?json\s*(;.*)?", re.IGNORECASE)
KEEPER_PATHS = frozenset({"/metrics", "/health/config", "/health/providers"})  # the keeper's, as metric labels


class Gateway:
    """Serves the client endpoints. One per worker; `snapshot` is replaced whole on reload."""

    def __init__(  # noqa: PLR0917 - the seams of the request path, each once
        self,
        snapshot: Snapshot,
        executor: Executor,
        transport: Transport,
        telemetry: Telemetry,
        ledger: Ledger,
        clock: Clock,
        draw: Callable[[], float],
        elsewhere: Route,
        tracer: Tracer | None,
    ) -> None:
        self.snapshot = snapshot
        self.executor = executor
        self.transport = transport
        self.telemetry = telemetry
        self.ledger = ledger
        self.clock = clock
        self.draw = draw
        self.elsewhere = elsewhere  # what is not the data plane: the keeper's
        self.tracer = tracer
        self.cutting = False
        self.routes: dict[str, dict[str, Route]] = {
            "/v1/chat/completions": {"POST": partial(self._ask, "chat", CHAT, self._chat)},
            "/v1/responses": {"POST": partial(self._ask, "chat", RESPONSES, self._chat)},
            "/v1/messages": {"POST": partial(self._ask, "chat", MESSAGES, self._chat)},
            "/v1/messages/count_tokens": {"POST": partial(self._ask, "count_tokens", MESSAGES, self._count)},
            "/v1/models": _read_only(self.list_models),
            "/health": _read_only(self.health),
        }
        self._model_routes = _read_only(self.show_model)

    def serve(self, call: Call) -> Coroutine[Any, Any, None] | None:
        """Answer at once, or return the work to do.

        Raises: Failure NO_SUCH_ROUTE or WRONG_METHOD; both before any authentication, naming no path.
        """
        methods = self.routes.get(call.path)
        call.template = call.path
        if methods is None:
            if call.path.startswith("/v1/models/"):
                call.template, methods = "/v1/models/{id}", self._model_routes
            elif call.path.startswith("/v1/"):
                call.template = "unmatched"
                raise Failure(
                    Kind.NO_SUCH_ROUTE,
                    "there is no such route; chat is at /v1/chat/completions, /v1/responses and /v1/messages",
                )
            else:
                call.template = call.path if call.path in KEEPER_PATHS else "unmatched"
                return self.elsewhere(call)
        route = methods.get(call.method)
        if route is None:
            allowed = ", ".join(methods)
            raise Failure(Kind.WRONG_METHOD, f"this route takes {allowed} only", headers=(("allow", allowed),))
        return route(call)

    def cut(self) -> None:
        """The drain is over: what is cancelled from now on is told why."""
        self.cutting = True

    def finished(self, call: Call) -> None:
        """Count an answered call, a streamed one up to its head."""
        headed_s = self.clock.monotonic() if call.headed_s is None else call.headed_s
        self.telemetry.answered(call.method, call.template, call.status, headed_s - call.received_s)

    # POST /v1/chat/completions, POST /v1/responses, POST /v1/messages, and what is below them

    async def _ask(self, operation: str, dialect: Dialect, answer: Answering, call: Call) -> None:
        """Serve a request about a chat in its client's dialect; never raises, and leaves one record."""
        record = RequestRecord(
            call.request_id, operation, started_s=call.received_s, started_wall_s=self.clock.wall(), caller=ANONYMOUS
        )
        trace = None if self.tracer is None else self.tracer.begin(record, call.headers, self.snapshot.leaves)
        admission: Admission | None = None
        try:
            routed = self._route(call, dialect, record, trace)
            admission = self.ledger.admit(record.caller, routed.attempts[0].leaf)
            await answer(routed, admission)
        except Failure as failure:
            self._refuse(call, dialect, record, failure)
        except asyncio.CancelledError:
            self._refuse(call, dialect, record, self._cancelled(call))
            raise
        except Exception:  # noqa: BLE001 - the outermost frame of the task; logged with its traceback
            log.crash(call.request_id)
            self._refuse(call, dialect, record, Failure(Kind.INTERNAL, "the gateway failed; its log has the details"))
        finally:
            self._record(record, admission)
            if trace is not None:
                trace.finish()

    def _route(self, call: Call, dialect: Dialect, record: RequestRecord, trace: RequestTrace | None) -> Routed:
        """Read the request, find what its id answers to and list the attempts it may make."""
        _check_media(call)
        request = dialect.parse(call.body)
        if not request.model:
            raise invalid("model is missing; name one of the ids that GET /v1/models lists")
        snapshot = self.snapshot
        entry = snapshot.plan.find(request.model)
        if entry is None:
            raise Failure(Kind.UNKNOWN_MODEL, "there is no such model; GET /v1/models lists the ids that can be called")
        if "chat" not in entry.capabilities:
            raise Failure(Kind.WRONG_CAPABILITY, f'model "{entry.id}" does not serve chat')
        record.requested, record.stream = entry.id, request.stream
        record.virtual_model = entry.id if entry.virtual else None
        record.metadata = self._metadata(call)
        if entry.preset is not None:
            request = prompted(entry.preset, request)
        attempts = entry.fixed
        if attempts is None:
            attempts = entry.decide(Facts.of_chat(request, call.headers, record.metadata, record.caller), self.draw)
        attempts = _able(attempts, snapshot.leaves, request)
        total_at_s = record.started_s + snapshot.leaves[attempts[0].leaf].timeouts.total_s
        return Routed(snapshot, call, dialect, request, entry, attempts, record, total_at_s, trace)

    def _metadata(self, call: Call) -> dict[str, str | float | bool] | None:
        """Read the metadata header; one that breaks its rules is dropped and counted, and the request goes on."""
        value = call.header(b"x-lumen-metadata")
        if value is None:
            value = call.header(b"cf-aig-metadata")
        if value is None:
            return None
        metadata = read_metadata(value)
        if metadata is None:
            self.telemetry.metadata_rejected()
            log.metadata_rejected(call.request_id)
        return metadata

    def _chat(self, routed: Routed, admission: Admission) -> Coroutine[Any, Any, None]:
        if routed.request.stream:
            return self._streamed(routed, admission)
        return self._whole(routed, admission, BufferedChat(**self._exchange(routed)))

    def _count(self, routed: Routed, admission: Admission) -> Coroutine[Any, Any, None]:
        return self._whole(routed, admission, TokenCount(**self._exchange(routed)))

    async def _whole(self, routed: Routed, admission: Admission, exchange: Exchange[bytes]) -> None:
        body = await self.executor.run(routed.job(exchange, admission))
        routed.record.status = 200
        routed.call.send(200, respond.JSON + respond.served(routed.record, routed.attempts), body)

    async def _streamed(self, routed: Routed, admission: Admission) -> None:
        server = routed.snapshot.server
        exchange = StreamedChat(
            **self._exchange(routed),
            max_event_bytes=server.max_event_bytes,
            complete=routed.entry.commit == "complete",
        )
        open_early = partial(routed.call.start, 200, respond.EVENT_STREAM) if server.early_headers else None
        heartbeat = Heartbeat(asyncio.get_running_loop(), server.sse_heartbeat_ms / 1000, routed.call, open_early)
        heartbeat.start()
        try:
            stream = await self.executor.run(routed.job(exchange, admission))
            await self._relay(routed, exchange, stream)
        finally:
            heartbeat.stop()

    async def _relay(self, routed: Routed, exchange: StreamedChat, stream: OpenStream) -> None:
        call, record = routed.call, routed.record
        record.status = 200
        if call.started:
            call.write(respond.served_comment(record, routed.attempts))
        else:
            call.start(200, respond.EVENT_STREAM + respond.served(record, routed.attempts))
        try:
            failure = await relay(stream, call, self.clock)
        finally:
            exchange.settle(stream)
        if failure is not None:
            record.status, record.code = failure.status, failure.kind.row.code
            log.refused(call.request_id, failure)

    def _exchange(self, routed: Routed) -> dict[str, Any]:
        """What both forms of a chat exchange are made of."""
        return {
            "request": routed.request,
            "attempts": routed.attempts,
            "headers": routed.call.headers,
            "total_at_s": routed.total_at_s,
            "transport": self.transport,
            "clock": self.clock,
            "warn": partial(log.upstream_refused, routed.call.request_id),
            "note_lost": partial(log.fields_lost, routed.call.request_id) if log.is_on(log.DEBUG) else None,
            "trace": routed.trace,
            "dialect": routed.dialect,
        }

    def _refuse(self, call: Call, dialect: Dialect, record: RequestRecord, failure: Failure) -> None:
        """Tell the client what failed: as a status while nothing was sent, else as the stream's last event."""
        record.status, record.code = failure.status, failure.kind.row.code
        log.refused(call.request_id, failure)
        if failure.kind is Kind.CLIENT_LEFT:
            return
        if not call.started:
            call.send(*respond.failure_answer(failure, dialect))
        elif not call.complete:
            call.finish(final_event(failure, dialect))

    def _cancelled(self, call: Call) -> Failure:
        if self.cutting and not call.left:
            return Failure(Kind.SHUTTING_DOWN, "the gateway is stopping; send the request again")
        return Failure(Kind.CLIENT_LEFT, "the client left")

    def _record(self, record: RequestRecord, admission: Admission | None) -> None:
        """Close the books of a request: settle or release once, then hand its record over."""
        record.ended_s = self.clock.monotonic()
        if admission is not None:
            tokens = cost_pico = 0
            for attempt in record.attempts:
                tokens += attempt.usage.input + attempt.usage.output
                cost_pico += attempt.cost_pico or 0
            if tokens:
                admission.settle(cost_pico, tokens)
            else:
                admission.release()
        self.telemetry.record(record)
        log.done(record)

    # The small ones: answered at once, no task.

    def health(self, call: Call) -> None:
        """`GET /health`: alive, no I/O."""
        call.send(200, respond.JSON, respond.HEALTH)

    def list_models(self, call: Call) -> None:
        """`GET /v1/models`."""
        call.send(200, respond.JSON, self.snapshot.models)

    def show_model(self, call: Call) -> None:
        """`GET /v1/models/{id}`; ids may hold slashes, percent-encoded or not."""
        model_id = urllib.parse.unquote(call.path.removeprefix("/v1/models/"))
        body = self.snapshot.model.get(model_id)
        if body is None:
            raise Failure(Kind.UNKNOWN_MODEL, "there is no such model; GET /v1/models lists the ids that can be called")
        call.send(200, respond.JSON, body)


def _read_only(route: Route) -> dict[str, Route]:
    """Serve what can be read. HEAD is GET whose body stays here. Source: RFC 9110 9.3.2."""
    return {"GET": route, "HEAD": route}


def _check_media(call: Call) -> None:
    """Refuse a body that does not say it is JSON: a web page can have a browser send anything else here unasked.

    Raises: Failure `LM-1001`.
    """
    media_type = call.header(b"content-type") or b""
    if media_type != b"application/json" and not _JSON_MEDIA.fullmatch(media_type):
        raise invalid("a chat request is JSON; send it with the header content-type: application/json")


def _able(attempts: tuple[Attempt, ...], leaves: Mapping[str, Leaf], request: ClientRequest) -> tuple[Attempt, ...]:
    """Drop the leaves that cannot take this request; if none is left, the first one's reason is the answer."""
    images = request.has_images()
    if not images and not request.stream:
        return attempts

    def unable(attempt: Attempt) -> bool:
        leaf = leaves[attempt.leaf]
        return (images and not leaf.images) or (request.stream and not leaf.streams)

    if not any(map(unable, attempts)):
        return attempts
    kept = without(attempts, unable)
    if kept:
        return kept
    first = leaves[attempts[0].leaf]
    if images and not first.images:
        raise Failure(Kind.IMAGE_UNSUPPORTED, f'model "{first.id}" takes no images')
    raise Failure(Kind.WRONG_CAPABILITY, f'model "{first.id}" cannot stream; send "stream": false')
