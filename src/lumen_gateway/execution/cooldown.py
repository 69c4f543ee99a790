"""Leaves that asked to be left alone: a long `Retry-After`, an exhausted quota.

Keyed like breakers by (provider, key label, model). Unlike a breaker it is not about failure but about an appointment:
until then the leaf is not called, afterwards it is called as before. Pure: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from lumen_gateway.errors import Trigger
from lumen_gateway.execution.leaf import Key

MAX_COOLDOWN_S = 300.0  # an upstream may ask for a day; operators want to see it recover sooner


class Appointment(NamedTuple):
    """When the leaf may be called again, and what sent it away."""

    until_s: float
    triggers: Trigger


class Cooldowns:
    """Every leaf that is cooling down. Holds at most one entry per configured (provider, key label, model)."""

    def __init__(self) -> None:
        self._appointments: dict[Key, Appointment] = {}

    def start(self, key: Key, now_s: float, for_s: float, triggers: Trigger) -> None:
        """Leave the leaf alone for that long, five minutes at most; a later appointment stands."""
        until_s = now_s + min(for_s, MAX_COOLDOWN_S)
        standing = self._appointments.get(key)
        if standing is None or standing.until_s < until_s:
            self._appointments[key] = Appointment(until_s, triggers)

    def find(self, key: Key, now_s: float) -> Appointment | None:
        """Return the appointment of a leaf that still cools down; one that is over is forgotten."""
        if not self._appointments:
            return None
        appointment = self._appointments.get(key)
        if appointment is not None and appointment.until_s <= now_s:
            del self._appointments[key]
            return None
        return appointment

    def retain(self, keys: Container[Key]) -> None:
        """Forget the leaves that are not among these."""
        for key in [key for key in self._appointments if key not in keys]:
            del self._appointments[key]
