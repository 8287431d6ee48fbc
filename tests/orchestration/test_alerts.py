"""Alerts reach a real webhook once for each change, and never show its URL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from dagster import AssetCheckEvaluation, AssetCheckSeverity, DagsterInstance, DagsterRunStatus, build_sensor_context

from assets.names import Names
from orchestration.jobs import TICK
from orchestration.location import build_location
from orchestration.settings import Environment
from tests.lakes.dagster_lakes import Lakes

SECRET_PATH = "/hooks/T0PS3CRET"


class Webhook:
    """A server on this machine that keeps the messages it gets."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        received = self.texts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
                self.send_response(200 if self.path == SECRET_PATH else 404)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}{SECRET_PATH}"


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    webhook = Webhook()
    thread = threading.Thread(target=webhook.server.serve_forever)
    thread.start()
    yield webhook
    webhook.server.shutdown()
    thread.join()
    webhook.server.server_close()


def test_a_webhook_receives_each_change_once_and_its_url_is_never_shown(
    instance: DagsterInstance, lakes: Lakes, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes.document["alerts"] = {"env": "TESTS_WEBHOOK"}
    lakes.write(lakes.document)
    location = build_location(Environment(config_file=lakes.config))
    alerts = location.get_repository_def().get_sensor_def("alerts")

    def evaluated(cursor: str | None) -> tuple[str | None, str]:
        with build_sensor_context(instance=instance, cursor=cursor) as context:
            result = alerts.evaluate_tick(context)
        return result.cursor, str(result.skip_message)

    def report(check: str, passed: bool, severity: AssetCheckSeverity = AssetCheckSeverity.ERROR) -> None:
        evaluation = AssetCheckEvaluation(
            asset_key=Names("lakes").collection("prices"),
            check_name=check,
            passed=passed,
            severity=severity,
            description="time 7: two counts\nand more",
        )
        instance.report_runless_asset_event(evaluation)

    cursor, said = evaluated(None)
    assert said == "nothing has changed"
    report("nothing_is_contradicted", passed=False)
    report("quarantine_is_explained", passed=False, severity=AssetCheckSeverity.WARN)
    monkeypatch.setenv("TESTS_WEBHOOK", "http://127.0.0.1:1" + SECRET_PATH)
    cursor, said = evaluated(cursor)
    assert said == "the webhook cannot be reached; the next evaluation tries again"
    monkeypatch.setenv("TESTS_WEBHOOK", webhook.url)
    cursor, said = evaluated(cursor)
    assert webhook.texts == ["Tidelake, lake lakes:\nlakes/prices:nothing_is_contradicted fails: time 7: two counts"]
    assert SECRET_PATH not in said + str(cursor)
    cursor, _ = evaluated(cursor)
    assert len(webhook.texts) == 1

    report("nothing_is_contradicted", passed=True)
    cursor, _ = evaluated(cursor)
    assert webhook.texts[1:] == ["Tidelake, lake lakes:\nlakes/prices:nothing_is_contradicted passes again"]
    run = instance.create_run_for_job(location.resolve_job_def(TICK), status=DagsterRunStatus.STARTED)
    instance.report_run_failed(run, "over")
    cursor, _ = evaluated(cursor)
    assert webhook.texts[2:] == [f"Tidelake, lake lakes:\nrun {run.run_id} of tick failed"]


def test_without_the_setting_there_is_no_sensor(lakes: Lakes) -> None:
    repository = build_location(Environment(config_file=lakes.config)).get_repository_def()
    assert {sensor.name for sensor in repository.sensor_defs} == {"clear_dead_runs", "new_offsets", "watch_store"}
