"""`tidelake metrics`: the state of all collections, for Prometheus."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption
from tidelake.cli.render import say
from tidelake.errors import OptionRefused

_PORT_MAX = 65_535


def metrics(
    config: ConfigOption = CONFIG,
    serve: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=_PORT_MAX,
            metavar="PORT",
            help="Serve the metrics at http://ADDRESS:PORT/metrics until the process is stopped; 0 picks a free port.",
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(help="The address that `--serve` listens on; by default only this machine can reach it.")
    ] = "127.0.0.1",
    textfile: Annotated[
        Path | None,
        typer.Option(help="Write the metrics to this file, atomically, for node_exporter's textfile collector."),
    ] = None,
) -> None:
    """Print the state of all collections as Prometheus metrics, or serve them, or write them to a file.

    Does not start a JVM. There are at most 80 series for each collection.
    """
    from tidelake.telemetry.exposition import exposition, write_textfile
    from tidelake.telemetry.lake_metrics import lake_samples

    if serve is not None and textfile is not None:
        raise OptionRefused("--serve and --textfile cannot be combined", "run the command twice")
    if textfile is not None:
        write_textfile(textfile, list(lake_samples(open_lake(config, skip_invalid=True, read_only=True), time.time())))
    elif serve is not None:
        # The settings are read for each scrape, so that changes to them need no restart.
        _serve(address, serve, config)
    else:
        typer.echo(
            exposition(lake_samples(open_lake(config, skip_invalid=True, read_only=True), time.time())), nl=False
        )


def _serve(address: str, port: int, config: Path) -> None:
    from tidelake.telemetry.exposition import exposition
    from tidelake.telemetry.lake_metrics import lake_samples
    from tidelake.telemetry.server import PATH, MetricsServer

    open_lake(
        config, skip_invalid=True, read_only=True
    )  # wrong settings stop the command now; later, only the scrapes fail
    try:
        server = MetricsServer(
            address,
            port,
            lambda: exposition(lake_samples(open_lake(config, skip_invalid=True, read_only=True), time.time())),
        )
    except OSError as error:
        raise OptionRefused(
            f"port {port} of {address} cannot be opened: {error.strerror}", "give another port or address"
        ) from error
    with server:
        say(f"metrics: http://{address}:{server.server_port}{PATH}")
        server.serve_forever()
