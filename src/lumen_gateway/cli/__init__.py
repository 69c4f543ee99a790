"""The command `lumen`. Subcommands are imported when they run, so that `lumen check` never loads a server.

Bare `lumen -c FILE` is `lumen serve -c FILE`, and `lumen --check-config -c FILE` is `lumen check -c FILE`. Exit codes:
0 fine, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import importlib

import click

from lumen_gateway import __version__

COMMANDS = {
    "serve": "Serve a document. Bare `lumen -c FILE` does the same.",
    "check": "Say everything that is wrong with a document.",
    "plan": "Show what a model id leads to.",
    "demo": "Try every strategy against simulated providers.",
    "upstream": "Run a scripted upstream for tests.",
}
"""Command -> one line of help. Each lives in the module of its name here, as `command`."""

_OF_THE_GROUP = frozenset({"-h", "--help", "--version"})


class _Lumen(click.Group):
    """A group that knows its commands by name and imports only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        name = f"{__name__}.{cmd_name}"
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as exc:
            if exc.name == name:
                raise click.ClickException(f"`lumen {cmd_name}` is not in this version") from exc
            raise
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if any(arg.endswith(".toml") and not arg.startswith("-") for arg in (name, *rest[:1])):
            ctx.fail("A document is named with -c, as in: lumen check -c lumen.toml")
        if name not in COMMANDS:
            ctx.fail(f"No such command {name!r}; there are {', '.join(COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_command(args))


def _with_command(args: list[str]) -> list[str]:
    """Name the command that a bare option list means."""
    if args and (not args[0].startswith("-") or args[0] in _OF_THE_GROUP):
        return args
    if "--check-config" in args:
        return ["check", *(arg for arg in args if arg != "--check-config")]
    return ["serve", *args]


@click.group(
    cls=_Lumen,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("-c", "--config", metavar="FILE", expose_value=False, help="Without a command: serve this document.")
@click.option("--check-config", is_flag=True, expose_value=False, help="Without a command: check it instead.")
@click.version_option(__version__, message="lumen %(version)s")
def main() -> None:
    """One endpoint in front of every model provider."""
