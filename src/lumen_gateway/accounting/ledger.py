"""Admission: what a request may spend is reserved before its first call and settled exactly once.

The protocol is the seam; `Unlimited` admits everything and is what runs while there are no keys and budgets. Nothing
here awaits: a request is admitted or refused at once.
"""

from __future__ import annotations

from typing import Protocol

from lumen_gateway.records import Caller


class Admission(Protocol):
    """One admitted request. Exactly one of `settle` and `release` is called, on every way out."""

    def top_up(self, leaf: str) -> bool:
        """Reserve the cost of one more attempt; False: skip that leaf."""
        ...

    def settle(self, cost_pico: int, tokens: int) -> None:
        """Book what was used, in pico-dollars and tokens, and return the rest."""
        ...

    def release(self) -> None:
        """Return the whole reservation: nothing was used."""
        ...


class Ledger(Protocol):
    """Admits requests."""

    def admit(self, caller: Caller, leaf: str) -> Admission:
        """Reserve for the first attempt. Raises Failure when a budget or quota does not allow it."""
        ...


class Unlimited:
    """Admits everything and keeps no account. It is its own admission, as there is nothing to remember."""

    def admit(self, caller: Caller, leaf: str) -> Admission:  # noqa: ARG002 - the protocol's names
        """Admit."""
        return self

    def top_up(self, leaf: str) -> bool:  # noqa: ARG002 - the protocol's name
        """Allow."""
        return True

    def settle(self, cost_pico: int, tokens: int) -> None:
        """Nothing to book."""

    def release(self) -> None:
        """Nothing to return."""
