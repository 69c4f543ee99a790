"""Circuit breaker of one (provider, key label, model): stop calling what keeps failing, probe it later.

Closed counts consecutive faults; at the threshold it opens. Open refuses until the cooldown is over, then lets one
probe through (half-open). A probe that never reports back is presumed lost after one more cooldown, so no client that
leaves can jam the breaker. Faults while open come from stragglers and change nothing. Pure: the time is an argument.
"""

from __future__ import annotations

import enum

import msgspec


class State(enum.IntEnum):
    """Also the value of the `lumen_circuit_state` gauge."""

    CLOSED = 0
    OPEN = 1
    HALF_OPEN = 2


class BreakerPolicy(msgspec.Struct, frozen=True):
    """When to open and for how long."""

    threshold: int = 5
    cooldown_s: float = 30.0


class Breaker:
    """One breaker. The policy comes with each call, so a reload takes effect at once."""

    __slots__ = ("_faults", "_since_s", "state")

    def __init__(self) -> None:
        self.state = State.CLOSED
        self._faults = 0
        self._since_s = 0.0  # when it opened, or when the outstanding probe left

    def wait(self, policy: BreakerPolicy, now_s: float) -> float:
        """Return 0 if a call would be let through, else the seconds until one would. Changes nothing."""
        if self.state is State.CLOSED:
            return 0.0
        return max(0.0, self._since_s + policy.cooldown_s - now_s)

    def admit(self, policy: BreakerPolicy, now_s: float) -> float:
        """Let a call through (0), or refuse it with the seconds to wait.

        The call that an open breaker lets through is its probe.
        """
        if self.state is State.CLOSED:
            return 0.0
        wait_s = self.wait(policy, now_s)
        if wait_s == 0.0:
            self.state = State.HALF_OPEN
            self._since_s = now_s
        return wait_s

    def success(self) -> None:
        """A call was answered: close, from any state."""
        self.state = State.CLOSED
        self._faults = 0

    def fault(self, policy: BreakerPolicy, now_s: float) -> None:
        """A call failed through the provider's fault."""
        if self.state is State.OPEN:
            return
        self._faults += 1
        if self.state is State.HALF_OPEN or self._faults >= policy.threshold:
            self.state = State.OPEN
            self._since_s = now_s
