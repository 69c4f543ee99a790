"""The program with little patience for clients, in everything else the real one; a script with `lumen`'s options.

The usual limits are tens of seconds. Here a head has half a second, a body half a second to keep up its rate, a reader
one.
"""

from __future__ import annotations

import functools
import sys
from unittest.mock import patch

from lumen_gateway import app, cli, control, worker
from lumen_gateway.app import worker_command
from lumen_gateway.cli import serve
from lumen_gateway.fastlane import LaneSettings
from lumen_gateway.patience import Patience

SHORT = Patience(head_s=0.5, body_s=0.5, write_s=1.0, linger_s=0.5, look_s=0.05)


def main() -> None:
    """Run the keeper, or, as what it starts, a worker."""
    if sys.argv[1] == "serve":
        with patch.object(serve, "worker_command", command):
            cli.main()
    else:
        with patch.object(worker, "LaneSettings", functools.partial(LaneSettings, patience=SHORT)):
            app.main()


def command(load: control.Load) -> list[str]:
    """Return what starts a worker: this script in place of the module."""
    python, _, _, *arguments = worker_command(load)
    return [python, __file__, *arguments]


if __name__ == "__main__":
    main()
