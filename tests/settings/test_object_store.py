"""A store in an object store: its URI, and the `s3:` block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.publish import Asked, target_of
from tidelake.cli.places import place_of
from tidelake.errors import ArgumentRefused, ConfigurationError, OptionRefused, StoreUnreachable
from tidelake.publish.target import FileTarget
from tidelake.settings.lake import load_settings
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.settings.problems import find_problems
from tidelake.settings.secret import Secret
from tidelake.storage import blobs, s3
from tidelake.storage.location import locate
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.layout import Store

KEYS = {"access_key_id": {"env": "KEY"}, "secret_access_key": {"file": "secret"}}


def written(folder: Path, **document: Any) -> Path:
    file = folder / "collections.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def place_in(folder: Path, **document: Any) -> ObjectStorePlace:
    place = load_settings(written(folder, **document)).store
    assert isinstance(place, ObjectStorePlace)
    return place


@pytest.mark.parametrize(
    "uri", ["s3://lake/shop/eu", "s3://lake/shop/eu/", "s3://lake//shop/eu", "S3://lake/shop//eu//"]
)
def test_a_store_has_one_uri_however_it_is_written(tmp_path: Path, uri: str) -> None:
    place = place_in(tmp_path, store=uri)
    assert (str(place), place.bucket, place.prefix) == ("s3://lake/shop/eu", "lake", "shop/eu")
    assert Store(place).root == Store(uri).root == locate("s3://lake/shop/eu")
    assert (Store(place).root / "catalog").uri == "s3://lake/shop/eu/catalog"


def test_settings_for_s3_name_the_jars_that_spark_needs(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, store="s3://lake")).jar_sets == ("s3",)
    assert load_settings(written(tmp_path)).jar_sets == ()


def test_a_folder_under_two_paths_is_one_store(tmp_path: Path) -> None:
    import pyarrow as pa

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    roots = [
        Store(load_settings(written(tmp_path, store=text)).store).root
        for text in (str(tmp_path / "real"), f"{tmp_path}/link/", (tmp_path / "link").as_uri(), f"{tmp_path}//real")
    ]
    for root in roots:
        create_table(root / "t", pa.schema([("a", pa.int64()), ("_run", pa.string())]))
    assert len({OpenTable(root / "t").id for root in roots}) == 1
    for number, root in enumerate(roots, start=1):
        assert OpenTable(root / "t").commit({}).version == number


@pytest.mark.parametrize(
    ("document", "field", "problem"),
    [
        ({"store": "s3://"}, "store", "does not name a bucket: ''"),
        ({"store": "s3://a_/.."}, "store", "does not name a bucket"),
        ({"store": "s3://lake/../x"}, "store", "has the name '..', which is not a folder in an object store"),
        ({"store": "s3://lake/a b"}, "store", "characters other than letters"),
        ({"store": "s3://lake/a%20b"}, "store", "characters other than letters"),
        ({"store": "s3://lake?versionId=1"}, "store", "does not name a bucket"),
        ({"store": "s3://key:secret@lake/a"}, "store", "does not name a bucket"),
        ({"store": "s3a://lake"}, "store", "only 'file' and 's3' are supported"),
        ({"store": "gs://lake"}, "store", "the scheme 'gs', and Tidelake has never been tested on such stores"),
        ({"store": "az://lake"}, "store", "the scheme 'az', and Tidelake has never been tested on such stores"),
        ({"store": "gs://lake", "untested_stores": True}, "untested_stores", "is not `allow`"),
        ({"store": "s3://lake", "s3": {"bucket": "a"}}, "s3.bucket", "is not a known key"),
        ({"store": "s3://lake", "s3": []}, "s3", "is not a mapping"),
        ({"store": "s3://lake", "s3": {"endpoint": "minio:9000"}}, "s3.endpoint", "string should match"),
        ({"store": "s3://lake", "s3": {"endpoint": "http://minio:9000"}}, "s3.endpoint", "data would go to minio over"),
        ({"store": "s3://lake", "s3": {"endpoint": "https://a", "allow_http": True}}, "s3.allow_http", "has no effect"),
        ({"store": "s3://lake", "s3": {"allow_http": True}}, "s3.allow_http", r"not set\nhint: .*AWS_ALLOW_HTTP=true"),
        ({"store": "s3://lake", "s3": {"secret_access_key": "abc"}}, "s3.secret_access_key", "a secret in plain text"),
        ({"store": "s3://lake", "s3": {"access_key_id": {"env": "A"}}}, "s3.secret_access_key", "set together"),
        ({"store": "s3://lake", "s3": {"session_token": {"env": "A"}}}, "s3.session_token", "has no effect without"),
        ({"store": "s3://lake", "s3": {"request_timeout_s": 0}}, "s3.request_timeout_s", "greater than"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(
    tmp_path: Path, document: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        load_settings(written(tmp_path, **document))
    assert (caught.value.field, "abc" in str(caught.value), bool(caught.value.hint)) == (field, False, True)
    assert [error.field for error in find_problems(tmp_path / "collections.yaml")[1]] == [field]


def test_topics_and_reports_have_uris_too(tmp_path: Path) -> None:
    document = {
        "store": "store",
        "topics": "S3://lake//topics/",
        "data_docs": "s3://web",
        "s3": {"region": "eu-west-1"},
    }
    settings = load_settings(written(tmp_path, **document))
    assert (settings.store, str(settings.topics), str(settings.data_docs)) == (
        tmp_path / "store",
        "s3://lake/topics",
        "s3://web",
    )
    places = (settings.topics, settings.data_docs)
    assert [place.s3.region for place in places if isinstance(place, ObjectStorePlace)] == ["eu-west-1"] * 2
    assert settings.jar_sets == ("s3",)
    assert load_settings(written(tmp_path, data_docs="s3://web")).jar_sets == (), (
        "Spark neither reads nor writes reports"
    )
    assert load_settings(written(tmp_path, data_docs=(tmp_path / "a b").as_uri())).data_docs == tmp_path / "a b"


def test_the_block_is_used_for_uris_in_commands_if_the_lake_is_on_a_disk(tmp_path: Path) -> None:
    block = {"endpoint": "https://minio:9000", "region": "eu-west-1"}
    settings = load_settings(written(tmp_path, s3=block, kafka={"bootstrap_servers": "kafka:9092"}))
    assert (settings.store, settings.jar_sets) == (tmp_path / "data" / "store", ())
    place = place_of("s3://lake//recorded/", settings.object_stores)
    assert isinstance(place, ObjectStorePlace)
    assert (str(place), place.s3.endpoint) == ("s3://lake/recorded", "https://minio:9000")
    assert find_problems(tmp_path / "collections.yaml")[1] == []
    target = target_of(settings, Asked("s3://lake//published/"))
    assert isinstance(target, FileTarget)
    assert (str(target.folder), target.name) == ("s3://lake/published",) * 2
    assert (blobs.delta_options(target.folder) or {})["aws_endpoint_url"] == "https://minio:9000"
    with pytest.raises(ArgumentRefused, match="to is 'gs://lake/x', which is a URI with the scheme 'gs'"):
        target_of(settings, Asked("gs://lake/x"))


@pytest.mark.parametrize("field", ["topics", "data_docs"])
@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("gs://lake/x", "the scheme 'gs', and Tidelake has never been tested on such stores"),
        ("abfs://lake/x", "only 'file' and 's3' are supported"),
        ("s3a://lake/x", "only 'file' and 's3' are supported"),
        ("s3://", "does not name a bucket"),
        ("s3://lake/../x", "has the name '..', which is not a folder"),
        (
            "s3://lake/a b",
            r"characters other than letters.* in the name 'a b'\nhint: .*; a folder's name has only letters",
        ),
    ],
)
def test_a_uri_that_cannot_be_right_is_refused_for_every_place(
    tmp_path: Path, field: str, uri: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        load_settings(written(tmp_path, **{field: uri}))
    assert (caught.value.field, bool(caught.value.hint)) == (field, True)
    assert [error.field for error in find_problems(tmp_path / "collections.yaml")[1]] == [field]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"store": "s3://lake/shop", "topics": "s3://lake/shop"}, "store"),
        ({"store": "s3://lake/shop/store", "topics": "s3://lake/shop"}, "store"),
        ({"store": "s3://lake", "topics": "s3://lake/topics"}, "store"),
        ({"store": "s3://lake/shop", "data_docs": "s3://lake/shop/docs"}, "data_docs"),
        ({"topics": "s3://lake/topics", "data_docs": "s3://lake/topics/docs"}, "data_docs"),
    ],
)
def test_places_in_a_bucket_must_be_separate(tmp_path: Path, document: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError, match="are the same folder, or one is inside the other") as caught:
        load_settings(written(tmp_path, **document))
    assert caught.value.field == field
    apart = {"store": "s3://lake/shop", "topics": "s3://lake/shops", "data_docs": "s3://lake/docs"}
    assert str(load_settings(written(tmp_path, **apart)).topics) == "s3://lake/shops"


def test_untested_stores_are_accepted_only_if_the_settings_allow_them(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, store="gs://lake//shop/", untested_stores="allow"))
    assert (str(settings.store), settings.jar_sets) == ("gs://lake/shop", ())


def test_a_command_without_settings_does_not_advise_to_change_them(tmp_path: Path) -> None:
    with pytest.raises(OptionRefused, match="has never been tested") as caught:
        place_of("gs://lake/shop")
    assert caught.value.hint == "use an s3: or file: URI, or a path"
    with pytest.raises(OptionRefused, match="or set `untested_stores: allow`"):
        place_of("gs://lake/shop", load_settings(written(tmp_path)).object_stores)


def test_an_untested_store_that_the_environment_does_not_describe_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    root = Store(place_in(tmp_path, store="az://lake/shop", untested_stores="allow")).root
    with pytest.raises(StoreUnreachable, match=r"does not serve az://lake/shop: .*Account must be specified"):
        OpenTable(root / "t")


def test_secrets_are_read_when_a_store_is_opened_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_in(tmp_path, store="s3://lake/shop", s3=KEYS)
    assert place.s3.access_key_id == Secret(env="KEY")
    with pytest.raises(ConfigurationError, match=r"KEY: is not set, but s3\.access_key_id is read from it"):
        s3.access_of(place)
    monkeypatch.setenv("KEY", "")
    with pytest.raises(ConfigurationError, match=r"KEY: is empty, but s3\.access_key_id is read from it"):
        s3.access_of(place)
    monkeypatch.setenv("KEY", "id")
    with pytest.raises(
        ConfigurationError, match=r"No such file.*\nhint: correct the path, or give this user permission"
    ):
        s3.access_of(place)
    (tmp_path / "secret").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"not UTF-8 text\nhint: write the secret as UTF-8"):
        s3.access_of(place)
    (tmp_path / "secret").write_text("hidden\n", encoding="utf-8")
    access = s3.access_of(place)
    assert access.credentials == {"access_key_id": "id", "secret_access_key": "hidden"}
    assert "hidden" not in f"{access!r} {place!r} {place}"
    assert s3.delta_options(access)["aws_secret_access_key"] == "hidden"
    assert s3.hadoop_options(access)["fs.s3a.bucket.lake.secret.key"] == "hidden"


def test_the_environment_says_what_the_settings_leave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    place = place_in(tmp_path, store="s3://lake/shop")
    assert (s3.access_of(place).endpoint, s3.access_of(place).region) == (None, "us-east-1")
    assert not s3.access_of(place).path_style
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    access = s3.access_of(place)
    assert (access.endpoint, access.region, access.path_style) == ("http://127.0.0.1:9000", "eu-west-1", True)
    assert access.allow_http
    chosen = {"endpoint": "https://s3.example", "region": "eu-central-1", "path_style": False}
    access = s3.access_of(place_in(tmp_path, store="s3://lake/shop", s3=chosen))
    assert (access.host_endpoint, access.region, access.allow_http) == (
        "https://lake.s3.example",
        "eu-central-1",
        False,
    )
    assert s3.hadoop_options(access)["fs.s3a.bucket.lake.endpoint"] == "https://s3.example"
    assert "aws_access_key_id" not in s3.delta_options(access)


def test_spark_looks_for_credentials_where_obstore_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sources(**block: Any) -> list[str]:
        place = place_in(tmp_path, store="s3://lake/shop", **block)
        names = s3.hadoop_options(s3.access_of(place))["fs.s3a.bucket.lake.aws.credentials.provider"].split(",")
        return [name.rpartition(".")[2].removesuffix("CredentialsProvider") for name in names]

    for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    environment = ["TemporaryAWS", "SimpleAWS", "EnvironmentVariable", "WebIdentityTokenFile"]
    assert sources() == [*environment, "IAMInstance"]
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/lake")
    assert sources() == environment, "the role of the machine must not stand in for an identity that is refused"
    monkeypatch.setenv("KEY", "id")
    (tmp_path / "secret").write_text("hidden", encoding="utf-8")
    assert sources(s3=KEYS) == ["SimpleAWS"]
    assert sources(s3={**KEYS, "session_token": {"env": "KEY"}}) == ["TemporaryAWS"]
