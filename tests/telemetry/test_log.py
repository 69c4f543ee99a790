"""One record is one line, in both forms; levels tell whose fault it was; nothing from outside writes to a terminal."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from typing import Literal

import pytest

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import AttemptRecord, RequestRecord, Usage
from lumen_gateway.telemetry import log

NASTY = "a\r\nb\x1b[31mc\x00d\x7fe\x9b2Jf\u2028g\tü"
FORMS: list[Literal["pretty", "json"]] = ["pretty", "json"]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root, levels = logging.getLogger(), (logging.getLogger().level, log.logger.level)
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    log.logger.setLevel(levels[1])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.split("\n")[:-1]


def fields(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    [line] = lines(capsys)
    return dict(json.loads(line))


def a_request(**more: object) -> RequestRecord:
    attempts = [
        AttemptRecord(0, "a/m", "a", outcome="timeout", escape="timeout"),
        AttemptRecord(1, "b/m", "b", route="smart>b/m", usage=Usage(input=9, output=3)),
    ]
    record = RequestRecord("id-1", "chat", requested="smart", started_s=10.0, ended_s=10.25, status=200)
    record.attempts = attempts
    for name, value in more.items():
        setattr(record, name, value)
    return record


def test_json_line_says_when_how_bad_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json")
    log.event(log.INFO, "worker.started", "worker 1 serves", worker=1, absent=None)
    found = fields(capsys)
    assert list(found) == ["ts", "level", "action", "message", "worker"]
    assert str(found.pop("ts"))[10:11] == "T"
    assert found == {"level": "info", "action": "worker.started", "message": "worker 1 serves", "worker": 1}


def test_pretty_line_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("pretty")
    log.event(log.WARNING, "worker.died", "worker 1 died", worker=1)
    [line] = lines(capsys)
    assert line[8:] == " warning worker 1 died  worker=1"


@pytest.mark.parametrize("form", FORMS)
def test_one_record_stays_one_line_and_moves_no_cursor(
    form: Literal["pretty", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    log.setup(form)
    log.event(log.ERROR, "upstream.refused", NASTY, text=NASTY)
    [line] = lines(capsys)
    assert line.isprintable()
    assert "ü" in line
    if form == "json":
        assert json.loads(line)["message"] == json.loads(line)["text"] == NASTY


@pytest.mark.parametrize("form", FORMS)
def test_percent_signs_are_no_placeholders(form: Literal["pretty", "json"], capsys: pytest.CaptureFixture[str]) -> None:
    log.setup(form)
    log.event(log.ERROR, "upstream.refused", "100 %s %(action)s {level}")
    assert "100 %s %(action)s {level}" in lines(capsys)[0]


def test_level_is_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json", "WARNING")
    log.event(log.INFO, "worker.started", "unheard")
    log.done(a_request())
    assert lines(capsys) == []


def test_other_libraries_are_heard_from_warning_on(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json", "DEBUG")
    logging.getLogger("asyncio").info("unheard")
    logging.getLogger("asyncio").warning("heard")
    assert fields(capsys)["action"] == "asyncio"


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        (Kind.INVALID_REQUEST, "debug"),
        (Kind.UNKNOWN_MODEL, "debug"),
        (Kind.RATE_LIMITED, "debug"),
        (Kind.CLIENT_LEFT, "debug"),
        (Kind.UPSTREAM_ERROR, "error"),
        (Kind.INTERNAL, "error"),
    ],
)
def test_failed_request_is_an_error_only_when_it_is_no_clients_fault(
    kind: Kind, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.setup("json", "DEBUG")
    log.refused("id-1", Failure(kind, "it broke", provider="a", upstream_status=503))
    found = fields(capsys)
    assert (found["level"], found["action"]) == (level, "request.failed")
    assert (found["request_id"], found["code"], found["status"]) == ("id-1", kind.row.code, kind.row.status)
    assert (found["provider"], found["upstream_status"]) == ("a", 503)


def test_finished_request_is_one_debug_line_with_ids_and_numbers_only(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json", "DEBUG")
    log.done(a_request(metadata={"team": "secret"}))
    found = fields(capsys)
    del found["ts"]
    assert found == {
        "level": "debug",
        "action": "request.done",
        "message": "smart answered 200",
        "request_id": "id-1",
        "model": "smart",
        "route": "smart>b/m",
        "attempts": 2,
        "status": 200,
        "input_tokens": 9,
        "output_tokens": 3,
        "ms": 250.0,
    }


def test_request_that_never_named_a_model_is_logged_too(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json", "DEBUG")
    log.done(RequestRecord("id-1", status=400, code="LM-1001"))
    found = fields(capsys)
    assert (found["message"], found["code"], found["attempts"]) == ("no model answered 400", "LM-1001", 0)


def test_upstreams_own_words_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json")
    log.upstream_refused("id-1", "a", 401, "bad key")
    found = fields(capsys)
    assert (found["level"], found["action"], found["upstream_error"]) == ("warning", "upstream.refused", "bad key")


def test_dropped_metadata_is_a_warning_without_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json")
    log.metadata_rejected("id-1")
    found = fields(capsys)
    assert (found["level"], found["action"], found["request_id"]) == ("warning", "metadata.rejected", "id-1")


@pytest.mark.parametrize("form", FORMS)
def test_crash_brings_its_traceback(form: Literal["pretty", "json"], capsys: pytest.CaptureFixture[str]) -> None:
    log.setup(form)
    try:
        raise RuntimeError("inner")
    except RuntimeError:
        log.crash("id-1")
    text = capsys.readouterr().out
    assert "RuntimeError: inner" in text
    if form == "json":
        found = json.loads(text)
        assert (found["level"], found["action"], found["request_id"]) == ("error", "gateway.crash", "id-1")


def test_crash_outside_of_a_request_has_an_action_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json")
    try:
        raise RuntimeError("inner")
    except RuntimeError:
        log.broken("worker.compose", "it broke")
    found = fields(capsys)
    assert (found["level"], found["action"], found["message"]) == ("error", "worker.compose", "it broke")
    assert "RuntimeError: inner" in str(found["traceback"])


def test_log_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json")
    [handler] = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stdout


@contextlib.contextmanager
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Log into a pipe, and yield its other end. (Not a fixture: pytest puts its own stdout back before the test.)"""
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stdout, open(reader, "rb", buffering=0, closefd=True):
        monkeypatch.setattr(sys, "stdout", stdout)
        log.setup("json")
        yield reader
        monkeypatch.undo()


def test_full_pipe_holds_nothing_up_and_the_loss_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pipe(monkeypatch) as reader:
        for number in range(3000):
            log.event(log.INFO, "x", f"{number} " + "x" * 100)
        taken = [json.loads(line) for line in os.read(reader, 1 << 20).splitlines()]
        log.event(log.INFO, "x", "again")
        lost, again = [json.loads(line) for line in os.read(reader, 1 << 20).splitlines()]
    assert [line["message"].split()[0] for line in taken] == [str(number) for number in range(len(taken))]
    assert (lost["action"], lost["level"]) == ("log.lost", "warning")
    assert lost["message"] == f"{3000 - len(taken)} records are missing here: nobody took them"
    assert again["message"] == "again"


def test_pipe_without_a_reader_is_no_trouble(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pipe(monkeypatch) as reader:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), reader)
        log.event(log.INFO, "x", "into the void")
    assert capfd.readouterr().err == ""


def test_program_without_stdout_logs_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    log.setup("json")
    log.event(log.ERROR, "x", "into the void")
