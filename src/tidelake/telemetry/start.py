"""Starts the listeners that the environment asks for."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from pathlib import Path

from tidelake.errors import ConfigurationError
from tidelake.telemetry.step_files import StepFiles
from tidelake.telemetry.steps import has_listeners, listen, stop_listening

FOLDER = "TIDELAKE_METRICS_FOLDER"
"""The variable with the folder to which each step writes its last outcome, for node_exporter."""
_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
)


def start_telemetry(variables: Mapping[str, str]) -> None:
    """Start the listeners that the environment asks for, unless this process already has listeners.

    Raises:
        ConfigurationError: the folder does not exist, or the packages for OTLP are not installed.
    """
    if has_listeners():
        return
    atexit.register(stop_listening)
    if folder := variables.get(FOLDER):
        if not Path(folder).is_dir():
            raise ConfigurationError("environment", "", f"{FOLDER} names {folder}, which is not a folder", "create it")
        listen(StepFiles(Path(folder)))
    endpoint = next((name for name in _ENDPOINTS if variables.get(name)), None)
    if endpoint is None or variables.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    try:
        from tidelake.telemetry.otlp import Otlp  # imported late: it takes 0.3 s
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "environment",
            "",
            f"{endpoint} is set, but the package {error.name} is not installed",
            "install the extra `otlp`, or unset the variable",
        ) from error
    listen(Otlp(variables))
