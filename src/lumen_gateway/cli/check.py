"""`lumen check`: everything that is wrong with a document, one fault a line, without opening a port."""

from __future__ import annotations

import os
from pathlib import Path

import click

from lumen_gateway.config.load import read_document
from lumen_gateway.config.schema import Config
from lumen_gateway.routing.compile import compile_plan


@click.command("check")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="Default: lumen.toml, else config.toml.")
@click.pass_context
def command(ctx: click.Context, path: Path | None) -> None:
    """Say everything that is wrong with a document.

    Prints one fault a line with its file, line, field and fix. Opens no port and reads no provider's key. Exits with 0
    if the document can be served, warnings or not, and with 1 if it cannot.
    """
    document = read_document(path, os.environ)
    if document.draft is not None:
        document = document.with_faults(compile_plan(document.draft).faults)
    for fault in sorted(document.faults, key=document.line):
        click.echo(document.locate(fault))
    if document.config is None:
        ctx.exit(1)
    click.echo(f"{document.path}: {_counts(document.config)}: ok")


def _counts(config: Config) -> str:
    return ", ".join(
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in (
            (len(config.providers), "provider"),
            (len(config.models()), "model"),
            (len(config.virtual_models), "virtual model"),
        )
    )
