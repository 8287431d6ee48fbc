"""Where the store, the topics and the reports may be, as stated in `collections.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelake.errors import ConfigurationError
from tidelake.settings.lake import load_settings
from tidelake.settings.place import folder_of
from tidelake.storage.location import locate

PLACES = ["store", "a:b", "data:/x", "file", "s3:bucket", "ü ∂/store"]


@pytest.mark.parametrize("text", PLACES)
def test_a_path_is_relative_to_the_folder_of_the_settings(text: str) -> None:
    assert folder_of(text, Path("/lake")) == Path("/lake", text)


def test_an_absolute_path_is_not_changed() -> None:
    assert folder_of("/data/100%25", Path("/lake")) == Path("/data/100%25")


@pytest.mark.parametrize("folder", ["/data/store", "/data/my store", "/data/100%", "/data/ü#?"])
def test_a_file_uri_stands_for_the_path_that_it_was_made_from(folder: str) -> None:
    assert folder_of(Path(folder).as_uri(), Path("/lake")) == Path(folder)
    assert folder_of(f"file://localhost{Path(folder).as_uri().removeprefix('file://')}", Path()) == Path(folder)
    assert locate(Path(folder).as_uri()) == locate(folder)
    assert locate(folder).uri == Path(folder).as_uri()


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("S3A://bucket/lake", "is a URI with the scheme 's3a', but only 'file'"),
        ("hdfs://host/lake", "is a URI with the scheme 'hdfs', but only 'file'"),
        ("abfss://files@account/lake", "is a URI with the scheme 'abfss', "),
        ("file://elsewhere/lake", "is not the URI of an absolute path on this machine"),
        ("file:lake", "is not the URI of an absolute path on this machine"),
        ("file:///lake?version=1", "is not the URI of an absolute path on this machine"),
        ("file:///lake%0A", "names a path with control characters"),
    ],
)
@pytest.mark.parametrize("field", ["store", "topics", "data_docs"])
def test_a_place_that_cannot_be_a_store_is_refused_and_named(
    tmp_path: Path, field: str, uri: str, problem: str
) -> None:
    file = tmp_path / "collections.yaml"
    file.write_text(f"{field}: {uri}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=problem.replace("(", r"\(")) as caught:
        load_settings(file)
    assert (caught.value.field, "://" in f"{caught.value.hint}" or "file:" in f"{caught.value.hint}") == (field, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["collections.yaml"]


def test_settings_accept_the_uri_of_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "collections.yaml"
    file.write_text(f"store: {(tmp_path / 'my store').as_uri()}\ntopics: topics\n", encoding="utf-8")
    settings = load_settings(file)
    assert (settings.store, settings.topics) == (tmp_path / "my store", tmp_path / "topics")
