"""What every test runs under."""

from __future__ import annotations

import gc

from hypothesis import settings

settings.register_profile("house", deadline=None)  # a busy machine is no fault; what must be fast says so itself
settings.load_profile("house")


def pytest_collection_finish() -> None:
    """Keep the collector off the thousands of collected tests: it would go through them again and again."""
    gc.collect()
    gc.freeze()
