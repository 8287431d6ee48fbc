"""A shop's lake in Dagster: its topics grow, and its jobs run as its schedules request them.

In the end, `visits` is in order, `stock` and `orders` have messages that could not be used, and `orders` also has a
time about which its source contradicts itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from dagster import AssetObservation, DagsterInstance, SensorResult, build_schedule_context, build_sensor_context

from examples.demo.topics import PERSON, write_capture_until
from orchestration.jobs import CURRENT, NIGHTLY, TICK
from orchestration.location import build_location
from orchestration.run_once import run_job
from orchestration.settings import PROJECT, Environment
from tidelake.generator.generate import generate
from tidelake.generator.options import GenerateOptions

FAMILIES: dict[str, Any] = {"orders": "plain", "visits": "append_only", "stock": "upsert"}
CAPTURED = "people"
"""A recorded Debezium topic."""
_TIMES = 10
"""The number of logical times that are added to a topic before each tick."""
_CAPTURED_MOMENTS = 3


class Shop:
    """The lake `shop` and its Dagster instance.

    Args:
        root: the folder of the lake, which must have the name `shop`.
        home: the folder of the instance.
        updates: the number of updates by which each topic grows before the first tick.
        names: the collections.
    """

    def __init__(self, root: Path, home: Path, updates: int, names: Sequence[str] = ("orders", "visits")) -> None:
        self.root, self.home, self.updates, self.names = root, home, updates, names
        self.ticks = 0
        self.config = root / "collections.yaml"
        self.docs = root / "data_docs"

    def open(self, ticks: int) -> None:
        """Tick several times; then publish the contents, and validate and compact everything, like the nightly jobs."""
        (self.root / "topics").mkdir(parents=True)
        self.home.mkdir()
        shutil.copy(PROJECT / "orchestration" / "dagster.yaml", self.home / "dagster.yaml")
        with DagsterInstance.from_config(str(self.home)) as self.instance:
            for number in range(ticks):
                self._grow(is_last=number == ticks - 1)
                self._observe()
                self._run(TICK)
            self._run(CURRENT)
            self._run(NIGHTLY)

    def environment(self) -> dict[str, str]:
        """The environment variables of a webserver for this lake."""
        return {"TIDELAKE_CONFIG": str(self.config), "DAGSTER_HOME": str(self.home)}

    def _grow(self, is_last: bool) -> None:
        for name in self.names:
            if name == CAPTURED:
                if self.ticks < _CAPTURED_MOMENTS:
                    write_capture_until(self.root / "topics", self.ticks)
                continue
            start = self.ticks * _TIMES
            contradicted = (start + _TIMES // 2,) if is_last and name == "orders" else ()
            options = GenerateOptions(
                name=name,
                family=FAMILIES[name],
                seed=1,
                append=self.ticks > 0,
                updates=self.updates * (1 + self.ticks % 3),
                times=_TIMES,
                copies=0.2 if name != "visits" else 0.0,
                shuffle="window",
                undecodable=int(name != "visits" and self.ticks == 1),
                conflicting_count_at=contradicted,
            )
            generate(options, self.root / "topics", self.root)
        if self.ticks == 0:
            self._write_config()
        self.ticks += 1

    def _write_config(self) -> None:
        def block(name: str) -> dict[str, Any]:
            if name == CAPTURED:
                raw = {"framing": "reclock", "envelope": "debezium", "format": "json"}
                return {**raw, "topic": name, "key": "id", "schema": PERSON}
            keyed = {"key": "id"} if FAMILIES[name] == "upsert" else {}
            return {"family": FAMILIES[name], "topic": name, "schema": f"{name}.avsc", **keyed}

        folders = {"store": "store", "topics": "topics", "data_docs": self.docs.name}
        document = {**folders, "collections": {name: block(name) for name in self.names}}
        self.config.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")

    def _observe(self) -> None:
        """Store the sensor's observations."""
        location = build_location(self._location)
        sensor = location.get_repository_def().get_sensor_def("new_offsets")
        with build_sensor_context(instance=self.instance, definitions=location) as context:
            result = sensor(context)
        assert isinstance(result, SensorResult)
        for event in result.asset_events:
            assert isinstance(event, AssetObservation)
            self.instance.report_runless_asset_event(event)

    def _run(self, job: str) -> None:
        """Run a job as its schedule requests it."""
        schedule = build_location(self._location).get_repository_def().get_schedule_def(f"{job}_schedule")
        now = datetime.now(UTC)
        with build_schedule_context(instance=self.instance, scheduled_execution_time=now) as context:
            (request,) = schedule.evaluate_tick(context).run_requests or []
        run_job(job, self.config, self.instance, "CRITICAL", request.tags)

    @property
    def _location(self) -> Environment:
        return Environment(config_file=self.config, config_required=True)
