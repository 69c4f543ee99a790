"""The response object and its items, as a Responses client reads them: whole, and piece by piece in a stream.

Source: OpenAI API reference, "The response object".
"""

from __future__ import annotations

from collections.abc import Sequence

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.neutral import Start, Thinking, ToolCall
from lumen_gateway.dialects.responses_answer import write_usage
from lumen_gateway.dialects.responses_parts import Wire, write_proof
from lumen_gateway.records import Usage

_REASONS: dict[neutral.Finish, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}


def response_id(id_: str) -> str:
    """Return an upstream's id as ids of responses look."""
    return id_ if id_.startswith("resp_") else f"resp_{id_}"


def write_response(
    named: Start, created: int, output: Sequence[object], finish: neutral.Finish | None, usage: Usage | None
) -> Wire:
    """Return a response object. Shape: `finish` is None for one that goes on; what was asked is not repeated in it."""
    reason = _REASONS.get(finish) if finish is not None else None
    return {
        "id": named.id,
        "object": "response",
        "created_at": created,
        "status": "in_progress" if finish is None else "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": named.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": write_usage(usage),
    }


def write_message(id_: str, status: str, content: Sequence[Wire]) -> Wire:
    """Return a message of the assistant's."""
    return {"id": id_, "type": "message", "status": status, "role": "assistant", "content": content}


def write_text(text: str) -> Wire:
    """Return the part of a message that is text."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def write_call(id_: str, status: str, call: ToolCall) -> Wire:
    """Return a call; the id by which its result names it is the upstream's own."""
    return {
        "id": id_,
        "type": "function_call",
        "status": status,
        "arguments": call.arguments,
        "call_id": call.id,
        "name": call.name,
    }


def write_reasoning(id_: str, thinking: Thinking) -> Wire:
    """Return reasoning: its text as the summary, which clients show, and what proves it."""
    summary = [{"type": "summary_text", "text": thinking.text}] if thinking.text else []
    item: Wire = {"id": id_, "type": "reasoning", "summary": summary}
    proof = write_proof(thinking)
    return item if proof is None else item | {"encrypted_content": proof}


def write_refusal(text: str) -> Wire:
    """Return the part of a message that is a refusal."""
    return {"type": "refusal", "refusal": text}
