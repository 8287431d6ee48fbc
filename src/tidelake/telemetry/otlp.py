"""Sends metrics and traces of steps to an OpenTelemetry collector, over HTTP.

The packages are those of the extra `otlp`; they are imported only if an endpoint is set. OpenTelemetry's own
variables, which its SDK reads, set the endpoints, headers, timeouts and resource attributes.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode

from tidelake import __version__
from tidelake.telemetry.steps import TEXTS, StepOutcome

_NANOSECONDS = 1_000_000_000
_SCOPE = "tidelake"


class Otlp:
    """A counter for each count of the steps, a histogram of their durations, and a span for each step."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Start the SDK; nothing is sent yet.

        Args:
            variables: the environment, which says whether metrics and traces have endpoints.
        """
        resource = Resource.create(
            {SERVICE_NAME: variables.get("OTEL_SERVICE_NAME") or "tidelake", SERVICE_VERSION: __version__}
        )
        readers: list[MetricReader] = []
        if has_endpoint(variables, "METRICS"):
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
        self._metrics = MeterProvider(readers, resource, shutdown_on_exit=False)
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        if has_endpoint(variables, "TRACES"):
            self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        meter = self._metrics.get_meter(_SCOPE, __version__)
        self._durations = meter.create_histogram("tidelake.step.duration", "s", "How long a step took.")
        self._failures = meter.create_counter("tidelake.step.failures", "1", "Steps that failed.")
        self._counts = {
            name: meter.create_counter(f"tidelake.step.{name}", "By" if name == "bytes" else "1", text)
            for name, text in TEXTS.items()
        }
        self._tracer = self._traces.get_tracer(_SCOPE, __version__)

    def record(self, outcome: StepOutcome) -> None:
        """Count a step, and add its span."""
        attributes = {"tidelake.collection": outcome.collection, "tidelake.step": outcome.step}
        self._durations.record(outcome.seconds, attributes)
        for name, count in outcome.counts.items():
            self._counts[name].add(count, attributes)
        began = int(outcome.began_s * _NANOSECONDS)
        span = self._tracer.start_span(f"tidelake.{outcome.step}", attributes=attributes, start_time=began)
        span.set_attributes({f"tidelake.{name}": count for name, count in outcome.counts.items()})
        if outcome.error is not None:
            self._failures.add(1, attributes)
            span.set_attribute("error.type", outcome.error)
            span.set_status(Status(StatusCode.ERROR, outcome.error))
        span.end(began + int(outcome.seconds * _NANOSECONDS))

    def close(self) -> None:
        """Send what is left; a collector that does not answer delays this by the SDK's timeout, 10 s by default."""
        self._traces.shutdown()
        self._metrics.shutdown()


def has_endpoint(variables: Mapping[str, str], signal: str) -> bool:
    """Return whether a signal, `METRICS` or `TRACES`, has an endpoint."""
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(variables.get(name) for name in names)
