"""The `registry` block: its settings, and the refusal to send a password to another machine in the clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tidelake.errors import ConfigurationError
from tidelake.settings.lake import load_settings
from tidelake.settings.registry import RegistrySettings

LOGIN = {"username": "u", "password": {"env": "PASSWORD"}}


def load(folder: Path, **registry: Any) -> RegistrySettings | None:
    file = folder / "collections.yaml"
    file.write_text(yaml.safe_dump({"collections": {}, "registry": registry}), encoding="utf-8")
    return load_settings(file).registry


@pytest.mark.parametrize(
    "url", ["http://schemas:8081", "http://10.0.0.1", "http://localhost.example/a", "http://127.0.0.1.example:1/?a#b"]
)
def test_a_password_is_not_sent_to_another_machine_over_http_unless_the_settings_allow_it(
    tmp_path: Path, url: str
) -> None:
    assert load(tmp_path, url=url) is not None
    with pytest.raises(ConfigurationError, match="over http, where anyone in between can read it") as caught:
        load(tmp_path, url=url, **LOGIN)
    assert caught.value.field == "registry.url"
    assert caught.value.file == f"{tmp_path / 'collections.yaml'}, line 5"
    assert "`allow_plain_http: true` in the `registry:` block" in caught.value.fix
    assert load(tmp_path, url=url, allow_plain_http=True, **LOGIN) is not None


@pytest.mark.parametrize(
    "url", ["https://schemas:8081", "http://127.0.0.1:8081/apis", "http://localhost:8081", "http://[::1]:8081"]
)
def test_a_password_is_sent_over_https_and_to_this_machine(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, url=url, **LOGIN) is not None


def test_a_permission_that_has_no_effect_is_refused(tmp_path: Path) -> None:
    for registry in ({"url": "https://schemas", **LOGIN}, {"url": "http://schemas"}):
        with pytest.raises(ConfigurationError, match="allow_plain_http: has no effect"):
            load(tmp_path, allow_plain_http=True, **registry)
    with pytest.raises(ConfigurationError, match="input should be a valid boolean"):
        load(tmp_path, url="http://schemas", allow_plain_http="yes please", **LOGIN)
    with pytest.raises(ConfigurationError, match=r"registry\.url: is not the address of a registry"):
        load(tmp_path, url="http://[schemas:8081")
