"""Appointments that upstreams make."""

from __future__ import annotations

from lumen_gateway.errors import Trigger
from lumen_gateway.execution.cooldown import MAX_COOLDOWN_S, Cooldowns

KEY = ("openai", None, "gpt")


def test_a_leaf_cools_down_until_its_time_and_not_longer() -> None:
    cooldowns = Cooldowns()
    cooldowns.start(KEY, 100.0, 20.0, Trigger.RATE_LIMITED)
    appointment = cooldowns.find(KEY, 119.9)
    assert appointment is not None
    assert appointment.until_s == 120.0
    assert cooldowns.find(KEY, 120.0) is None


def test_only_that_key_of_that_leaf_cools_down() -> None:
    cooldowns = Cooldowns()
    cooldowns.start(KEY, 100.0, 20.0, Trigger.RATE_LIMITED)
    assert cooldowns.find(("openai", "second", "gpt"), 101.0) is None
    assert cooldowns.find(("openai", None, "other"), 101.0) is None


def test_no_upstream_can_ask_for_more_than_five_minutes() -> None:
    cooldowns = Cooldowns()
    cooldowns.start(KEY, 0.0, 86_400.0, Trigger.QUOTA_EXHAUSTED)
    assert cooldowns.find(KEY, MAX_COOLDOWN_S) is None


def test_the_later_of_two_appointments_stands() -> None:
    cooldowns = Cooldowns()
    cooldowns.start(KEY, 0.0, 60.0, Trigger.QUOTA_EXHAUSTED)
    cooldowns.start(KEY, 1.0, 5.0, Trigger.RATE_LIMITED)
    appointment = cooldowns.find(KEY, 30.0)
    assert appointment is not None
    assert appointment.triggers is Trigger.QUOTA_EXHAUSTED
