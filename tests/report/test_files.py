"""Each file of a report is replaced atomically, even by several writers at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from expectations import offline
from tidelake.report import files, pages


def test_two_writers_of_the_same_page_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, replace = tmp_path / "validations.html", Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        files.replace_text(page, "second")
        assert page.read_text(encoding="utf-8") == "second"
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    files.replace_text(page, "first")
    assert page.read_text(encoding="utf-8") == "first"
    assert list(tmp_path.iterdir()) == [page]


def test_every_page_is_replaced_atomically() -> None:
    assert {offline.replace_text, pages.replace_text} == {files.replace_text}  # type: ignore[attr-defined]


def test_a_write_that_fails_leaves_the_page_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError("No space left on device")

    page = tmp_path / "index.html"
    page.write_text("old", encoding="utf-8")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        files.replace_text(page, "new")
    assert (page.read_text(encoding="utf-8"), list(tmp_path.iterdir())) == ("old", [page])
