"""The log: one record a line on stdout, each with a stable `action`, nothing above debug for a request that succeeds.

Messages hold ids, providers, statuses and codes; never a prompt, an answer, a key, a header value or a query. Text that
came from outside is cleaned before it gets here, and control characters are escaped on the way out, so one record stays
one line. Nothing waits for whoever reads the log: while a pipe is full, records are lost and counted.
"""

from __future__ import annotations

import logging
import select
import sys
import time
from collections.abc import Sequence
from typing import Literal, TextIO

import msgspec

from lumen_gateway.errors import Failure
from lumen_gateway.records import RequestRecord

logger = logging.getLogger("lumen")
DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


def setup(log_format: Literal["pretty", "json"], level: str = "INFO") -> None:
    """Send the log to stdout in one of its two forms."""
    handler = _Stdout(sys.stdout)
    handler.setFormatter(_Json() if log_format == "json" else _Pretty())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger.setLevel(level)


def event(level: int, action: str, message: str, **fields: str | float | None) -> None:
    """Log one record. `action` names the kind of event and never changes; `fields` are for machines."""
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"action": action, "fields": fields})


def is_on(level: int) -> bool:
    """Say whether anything of this level is logged at all."""
    return logger.isEnabledFor(level)


def refused(request_id: str, failure: Failure) -> None:
    """A request ended in an error: our own failures and upstreams' at error, the client's at debug."""
    level = logging.ERROR if failure.status >= 500 else logging.DEBUG
    event(
        level,
        "request.failed",
        f"{failure.kind.row.code} {failure.message}",
        request_id=request_id,
        code=failure.kind.row.code,
        status=failure.status,
        provider=failure.provider,
        upstream_status=failure.upstream_status,
    )


def done(record: RequestRecord) -> None:
    """Say how a request ended, for whoever turns debugging on."""
    if not logger.isEnabledFor(DEBUG):
        return
    last = record.attempts[-1] if record.attempts else None
    event(
        DEBUG,
        "request.done",
        f"{record.requested or 'no model'} answered {record.status}",
        request_id=record.request_id,
        model=record.requested,
        route=None if last is None else last.route or last.leaf,
        attempts=len(record.attempts),
        status=record.status,
        code=record.code,
        input_tokens=sum(attempt.usage.input for attempt in record.attempts),
        output_tokens=sum(attempt.usage.output for attempt in record.attempts),
        ms=round((record.ended_s - record.started_s) * 1000, 1),
    )


def upstream_refused(request_id: str, provider: str, status: int, text: str | None) -> None:
    """An upstream answered 4xx; `text` is its own message, cleaned and free of credentials."""
    event(
        logging.WARNING,
        "upstream.refused",
        f'provider "{provider}" answered {status}',
        request_id=request_id,
        provider=provider,
        upstream_status=status,
        upstream_error=text,
    )


def fields_lost(request_id: str, provider: str, names: Sequence[str]) -> None:
    """Something of a request could not be told to an upstream. Names of fields, never what they hold."""
    event(
        DEBUG,
        "request.fields_lost",
        f'provider "{provider}" is not told: {", ".join(names)}',
        request_id=request_id,
        provider=provider,
    )


def metadata_rejected(request_id: str) -> None:
    """A metadata header broke its rules and was dropped."""
    event(
        logging.WARNING,
        "metadata.rejected",
        "the metadata header was dropped: it must be a flat JSON object of at most 16 short values",
        request_id=request_id,
    )


def crash(request_id: str) -> None:
    """Log the exception being handled: a bug of ours."""
    logger.exception(
        "the gateway failed to serve a request", extra={"action": "gateway.crash", "fields": {"request_id": request_id}}
    )


def broken(action: str, message: str) -> None:
    """Log the exception being handled where no request is at hand: a bug of ours."""
    logger.exception(message, extra={"action": action})


class _Stdout(logging.StreamHandler[TextIO]):
    """Writes where there is room for a page, which a record fits into, and else goes on without."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lost = 0
        self._room: select.poll | None = select.poll()
        try:
            self._room.register(stream.fileno(), select.POLLOUT)
        except (AttributeError, OSError, ValueError):  # none, or one in memory
            self._room = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._room is not None and [flags for _, flags in self._room.poll(0)] != [select.POLLOUT]:
            self._lost += 1  # full, or its reader is gone
            return
        if self._lost:
            said = f"{self._lost} records are missing here: nobody took them"
            self._lost = 0
            super().emit(logger.makeRecord("lumen", WARNING, "", 0, said, (), None, extra={"action": "log.lost"}))
        super().emit(record)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "action": getattr(record, "action", record.name),
            "message": record.getMessage(),
        }
        line.update({k: v for k, v in getattr(record, "fields", {}).items() if v is not None})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode().translate(_JSON_CONTROLS)


class _Pretty(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{k}={v}" for k, v in getattr(record, "fields", {}).items() if v is not None)
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{clock} {record.levelname.lower():7} {record.getMessage()}  {fields}".rstrip()
        line = line.translate(_CONTROLS)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


_CONTROL_CODES = (*range(32), *range(127, 160), 0x2028, 0x2029)  # what moves a cursor or ends a line somewhere
_JSON_CONTROLS = {code: f"\\u{code:04x}" for code in _CONTROL_CODES}
_CONTROLS = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _CONTROL_CODES}
