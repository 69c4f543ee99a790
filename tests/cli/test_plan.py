"""`lumen plan`, as an operator sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lumen_gateway.cli.check import command as check
from lumen_gateway.cli.plan import command

DOCUMENT = """
[[providers]]
name = "one"
kind = "openai"
keys = [{ label = "spare", api_key_env = "K" }]
models = [
  { id = "a", capabilities = ["chat"] },
  { id = "b", capabilities = ["chat"] },
  { id = "c", capabilities = ["chat"] },
]

[[virtual_models]]
id = "canary"
capability = "chat"
strategy = "split"
targets = [
  { model = "a", weight = 80, key = "spare" },
  { model = "b", weight = 20, overrides = { set = { stop = "SECRET" }, drop = ["seed"] } },
]

[[virtual_models]]
id = "safe"
capability = "chat"
strategy = "fallback"
targets = [{ model = "canary" }, { model = "c" }]
fallback_on = ["rate_limited", "context_length"]

[[virtual_models]]
id = "router"
capability = "chat"
strategy = "switch"
targets = [{ model = "safe", when = { "metadata.plan" = { regex = "^pro" } } }, { model = "c" }]
preset = { system_prompt = "SECRET", overrides = { default = { reasoning_effort = "SECRET" } } }

[[virtual_models]]
id = "open"
capability = "chat"
strategy = "fallback"
targets = [{ model = "a" }, { model = "b" }]
fallback_on = ["any_error"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lumen.toml"
    path.write_text(DOCUMENT)
    return path


def run(path: Path, *args: str) -> Result:
    result = CliRunner().invoke(command, [*args, "-c", str(path)], env={"COLUMNS": "200"})
    assert "SECRET" not in result.output
    return result


def lines(path: Path, *args: str) -> list[str]:
    result = run(path, *args)
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.output.splitlines()]


def test_tree_shows_strategies_conditions_weights_triggers_and_names_only(path: Path) -> None:
    assert lines(path, "router") == [
        "router  switch",
        "├── preset: system prompt of 6 bytes, prepend; default reasoning_effort",
        '├── when metadata.plan regex "^pro":  safe  fallback on rate_limited, context_length',
        "│   ├── canary  split on provider_error, rate_limited, timeout, circuit_open",
        "│   │   ├── 80 of 100:  a  (provider one)  key spare",
        "│   │   └── 20 of 100:  b  (provider one)  [set stop; drop seed]",
        "│   └── c  (provider one)",
        "└── else:  c  (provider one)",
    ]


def test_tree_of_a_foundation_model_is_the_model(path: Path) -> None:
    assert lines(path, "a") == ["a  (provider one)"]


def test_any_error_is_shown_by_its_name(path: Path) -> None:
    assert lines(path, "open")[0] == "open  fallback on any_error"


def test_facts_show_the_attempts_where_failures_lead_and_why(path: Path) -> None:
    assert lines(path, "router", "--facts", '{"metadata.plan": "pro-2"}', "--draw", "0.8") == [
        'router: rule 1 holds (metadata.plan regex "^pro"): safe',
        "  canary: drew 0.800 of 1, 80.0 of 100: b first, then a",
        "3 attempts:",
        "  1  b  (provider one)  router>safe>canary>b  edits reasoning_effort, seed, stop",
        "       provider_error, rate_limited, timeout, circuit_open -> 2",
        "       context_length -> 3",
        "       anything else is the answer",
        "  2  a  (provider one, key spare)  router>safe>canary>a  edits reasoning_effort",
        "       rate_limited, context_length -> 3",
        "       anything else is the answer",
        "  3  c  (provider one)  router>safe>c  edits reasoning_effort",
        "       any failure is the answer",
    ]


def test_draw_of_zero_counts(path: Path) -> None:
    assert "canary: drew 0.000" in lines(path, "canary", "--facts", "{}", "--draw", "0")[0]


def test_split_without_a_draw_takes_a_random_one(path: Path) -> None:
    assert lines(path, "canary", "--facts", "{}")[1] == "2 attempts:"


def test_direct_call_has_one_attempt_and_any_error_leads_on(path: Path) -> None:
    assert lines(path, "a", "--facts", "{}") == [
        "1 attempt:",
        "  1  a  (provider one)  direct",
        "       any failure is the answer",
    ]
    assert lines(path, "open", "--facts", "{}")[2].endswith("malformed, empty_answer, any other error -> 2")


@pytest.mark.parametrize(
    "facts",
    [
        '{"metadata": {"plan": "pro"}, "header": {"X-A": "b"}, "group": "g", "stream": true, "input_tokens": 3}',
        '{"metadata.plan": "pro", "header.x-a": "b", "has_tools": false, "has_images": true, "documents": 2}',
    ],
)
def test_facts_carry_the_names_that_rules_use(path: Path, facts: str) -> None:
    assert "rule 1 holds" in lines(path, "router", "--facts", facts)[0]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ('{"streem": true}', 'did you mean "stream"?'),
        ('{"metadata": "pro"}', 'unknown fact "metadata"'),
        ('{"stream": 1}', '"stream" must be true or false'),
        ('{"input_tokens": true}', '"input_tokens" must be a number'),
        ('{"metadata.x": null}', '"metadata.x" must be a string, a number, true or false'),
        ('{"header.x": 1}', '"header.x" must be a string'),
        ('{"group": ["a"]}', '"group" must be a string'),
        ("[]", "not a JSON object"),
        ("{", "not a JSON object"),
    ],
)
def test_wrong_facts_are_refused_with_a_hint(path: Path, facts: str, words: str) -> None:
    result = run(path, "router", "--facts", facts)
    assert result.exit_code == 2
    assert words in result.output


def test_unknown_id_is_refused_with_the_nearest(path: Path) -> None:
    result = run(path, "rooter")
    assert result.exit_code == 1
    assert 'no model has the id "rooter"; did you mean "router"?' in result.output


def test_source_is_the_generated_python(path: Path) -> None:
    assert lines(path, "router", "--source")[0] == "def choose(facts, draw):  # router(safe, c)"
    assert lines(path, "open", "--source")[0].startswith("# open answers every request alike")


def test_broken_document_is_refused_with_its_faults(path: Path) -> None:
    path.write_text(DOCUMENT.replace('{ model = "safe"', '{ model = "save"'))
    result = run(path, "router")
    assert result.exit_code == 1
    assert 'no model has the id "save"' in result.output
    assert "lumen.toml" in result.output


def test_broken_document_is_refused_with_all_that_check_says(path: Path) -> None:
    path.write_text(DOCUMENT.replace('{ model = "safe"', '{ model = "save"') + "\n[server]\nport = 0\n")
    checked = CliRunner().invoke(check, ["-c", str(path)]).stdout
    assert len(checked.splitlines()) == 2
    assert run(path, "router").stderr == checked


def test_tree_that_goes_to_a_file_is_not_broken_at_any_width(path: Path) -> None:
    path.write_text(DOCUMENT.replace('"router"', f'"{"r" * 90}"', 1))
    assert any(len(line) > 90 for line in lines(path, "r" * 90))
