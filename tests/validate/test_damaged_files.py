"""A collection with damaged files is read-only and reported until the files are restored; validations verify files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import validate
from tests.lakes.lake import NAME, Lake, progress, updates
from tidelake import open_lake
from tidelake.errors import DamagedFiles
from tidelake.integrity.verification import Share
from tidelake.read.status import read_status
from tidelake.report.problems import problems_of
from tidelake.store.commit import OpenTable
from tidelake.store.files import RunFile
from tidelake.store.layout import PROOF_RUN
from tidelake.store.proof_log import read_proof_log


@pytest.mark.parametrize("days", [1, 7, 30])
def test_every_file_has_its_turn_once_in_a_round(days: int) -> None:
    files = [RunFile(f"_run=ingest-{number}/part-0.parquet", "a", 1, 1, None, None) for number in range(300)]
    turns = [[file.path for file in files if Share(day, days).has(file)] for day in range(20_000, 20_000 + days)]
    assert sorted(path for share in turns for path in share) == sorted(file.path for file in files)
    assert max(map(len, turns)) <= 3 * len(files) / days


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("sealed"), spark, verify_every_days=1)
    for time in range(3):
        rows = (((row, row), time, 1) for row in range(200))
        lake.send(updates(*rows), progress([time], [time + 1], {time: 200}))
        lake.run()
    assert not lake.validate(full=True).damaged
    return lake


@pytest.fixture
def sealed(prepared: Lake, tmp_path: Path) -> Lake:
    return prepared.copy(tmp_path / "sealed")


def path_of_a_file(lake: Lake, table: str = "updates", run: str = "ingest-") -> Path:
    opened = OpenTable(lake.collection.paths.root / table)
    return next((opened.path / file.path).local for file in opened.files() if file.run.startswith(run))


def writers(lake: Lake) -> list[Callable[[], object]]:
    return [lake.ingest, lake.seal, lake.compact]


def check_read_only(lake: Lake, name: str) -> None:
    """Check that every job that writes is refused, and that the status names the file."""
    versions = [OpenTable(table).version for table in lake.collection.tables]
    for write in writers(lake):
        with pytest.raises(DamagedFiles, match=name):
            write()
    assert [OpenTable(table).version for table in lake.collection.tables] == versions
    status = read_status(lake.collection)
    assert status.state == "DAMAGED files"
    assert name in (status.damaged or "")
    assert problems_of(status, None)[0].text.startswith("Files are missing or damaged: ")


def check_goes_on(lake: Lake) -> None:
    for write in writers(lake):
        write()
    assert read_status(lake.collection).state == "in order"


@pytest.mark.spark
def test_a_collection_with_a_missing_file_is_read_only_until_the_file_is_back(sealed: Lake) -> None:
    path = path_of_a_file(sealed)
    path.unlink()
    sealed.send(updates(((1, 1), 3, 1)))
    check_read_only(sealed, path.name)
    restored, left = open_lake(sealed.file).collection(NAME).repair_files(sealed.spark)
    assert (len(restored), left) == (1, [])
    check_goes_on(sealed)


@pytest.mark.spark
def test_a_collection_with_a_flipped_bit_is_read_only_from_one_validation_until_another_passes(sealed: Lake) -> None:
    path = path_of_a_file(sealed)
    good = path.read_bytes()
    path.write_bytes(good[:60] + bytes([good[60] ^ 1]) + good[61:])
    report = validate.run_full(sealed.spark, sealed.settings)
    assert isinstance(report.errors[NAME], DamagedFiles)
    assert path.name in str(report.errors[NAME])
    check_read_only(sealed, path.name)
    path.write_bytes(good)
    check_read_only(sealed, path.name)
    tables = (sealed.collection.paths.handles, *sealed.collection.tables)
    files = sum(len(OpenTable(table).files()) for table in tables)
    validated = sealed.validate()
    assert (validated.damaged, validated.files_verified) == (False, files)
    check_goes_on(sealed)


@pytest.mark.spark
def test_every_table_is_verified_but_only_by_full_validations(sealed: Lake) -> None:
    path = path_of_a_file(sealed, "proofs", PROOF_RUN)
    path.write_bytes(path.read_bytes()[:-1])
    assert not sealed.validate().damaged, "only full validations verify files"
    (mismatch,) = sealed.validate(full=True).mismatches
    assert mismatch.startswith("in proofs, ")
    assert read_proof_log(sealed.collection).has_damaged_files
