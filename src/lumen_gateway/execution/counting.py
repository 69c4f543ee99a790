"""One try at counting the tokens of a Messages request: exact where the leaf's upstream counts, else our estimate.

Within the plan and the executor this is an exchange like any other: it is retried, and it fails over.
"""

from __future__ import annotations

from lumen_gateway.accounting.tokens import estimate
from lumen_gateway.dialects import messages, messages_answer
from lumen_gateway.dialects.messages import MessagesRequest
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.exchange import ChatCall
from lumen_gateway.execution.leaf import Credential, Leaf
from lumen_gateway.records import AttemptRecord
from lumen_gateway.routing.plan import Attempt


class TokenCount(ChatCall):
    """The result is the body for the client. Nothing is generated, so nothing is booked."""

    async def perform(self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord) -> bytes:
        """Return the upstream's count as it came, or ours where the upstream has none to offer."""
        if leaf.count_head is None:
            return self._estimated()
        try:
            _, body = await self.fetch(leaf, credential, attempt, record)
        except Failure as failure:
            if failure.kind is Kind.UPSTREAM_NOT_FOUND:  # it speaks Messages, but not this part of it
                return self._estimated()
            raise
        messages_answer.check_count(body)
        return body

    def head(self, leaf: Leaf) -> bytes:
        """Return what the request begins with."""
        assert leaf.count_head is not None
        return leaf.count_head

    def body(self, leaf: Leaf, attempt: Attempt, record: AttemptRecord) -> bytes:  # noqa: ARG002 - see below
        """Write the body from the client's own: of what overrides may set, nothing counts and nothing is taken here."""
        assert isinstance(self.request, MessagesRequest)
        return messages.counting_body(self.request, leaf.model)

    def _estimated(self) -> bytes:
        return messages_answer.count_body(estimate(self.request))
