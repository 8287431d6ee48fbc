"""Where the store of a lake is: in the lake's folder, or in a bucket if the folder belongs to one.

A suite that uses the fixture `any_store` runs once on each kind of store. Its lakes do not know which kind it is.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from tests.services.object_store import ObjectStore
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.storage.s3 import open_store

KINDS = ("file", "s3")
"""Where a store can be."""
_NOT_IN_A_URI = re.compile(r"[^A-Za-z0-9._=+/-]")
_COPIERS = 4


@dataclass
class Bucket:
    """A bucket with the stores of all lakes whose folders belong to it.

    The prefix of a lake's store is the path of the lake's folder.
    """

    server: ObjectStore
    name: str
    folders: set[Path] = field(default_factory=set)

    def uri(self, folder: Path) -> str:
        """The URI of the store of a lake in this folder."""
        return f"s3://{self.name}/{self._prefix(folder)}/store"

    def copy(self, source: Path, target: Path) -> None:
        """Copy all objects of the lakes in a folder."""
        old, new = (f"{self._prefix(folder)}/" for folder in (source, target))
        paths = [meta["path"] for chunk in obstore.list(self._objects, old) for meta in chunk]
        with ThreadPoolExecutor(_COPIERS) as copiers:
            list(copiers.map(lambda path: obstore.copy(self._objects, path, new + path.removeprefix(old)), paths))

    def delete(self, folder: Path) -> None:
        """Delete all objects of the lakes in a folder."""
        paths = [meta["path"] for chunk in obstore.list(self._objects, self._prefix(folder)) for meta in chunk]
        if paths:
            obstore.delete(self._objects, paths)

    def put(self, folder: Path, below: Sequence[Path]) -> None:
        """Replace the objects of the lakes in a folder by the files below these subfolders."""
        self.delete(folder)
        files = [file for path in below for file in path.rglob("*") if file.is_file()]
        for file in files:
            obstore.put(self._objects, f"{self._prefix(folder)}/{file.relative_to(folder)}", file.read_bytes())

    def get(self, folder: Path) -> None:
        """Write the objects of the lakes in a folder to files below it."""
        prefix = self._prefix(folder)
        for path in [meta["path"] for chunk in obstore.list(self._objects, prefix) for meta in chunk]:
            file = folder / path.removeprefix(f"{prefix}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(obstore.get(self._objects, path).bytes()))

    @cached_property
    def _objects(self) -> S3Store:
        return open_store(ObjectStorePlace(uri=f"s3://{self.name}"))

    @staticmethod
    def _prefix(folder: Path) -> str:
        return _NOT_IN_A_URI.sub("-", str(folder.absolute())).strip("/")


_buckets: list[Bucket] = []


class Stores:
    """Decides for each folder where the stores of the lakes below it are.

    Args:
        bucket: the bucket for these stores; None: the stores are in the folders themselves.
    """

    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket
        if bucket is not None:
            _buckets.append(bucket)

    def hold(self, folder: Path) -> Path:
        """Decide that the stores of all lakes below a folder are in the bucket, if there is one; return the folder."""
        if self.bucket is not None:
            self.bucket.folders.add(folder)
        return folder


def store_settings(root: Path) -> dict[str, Any]:
    """The settings for the store of a lake in this folder."""
    bucket = bucket_of(root)
    return {"store": "store"} if bucket is None else bucket.server.settings_of(bucket.uri(root))


def store_root(root: Path) -> Location:
    """The root of the store of a lake in this folder; the environment says how it is reached."""
    bucket = bucket_of(root)
    return locate(root / "store" if bucket is None else bucket.uri(root))


def copy_lake(source: Path, target: Path) -> None:
    """Copy a lake's folder, and its store wherever it is, to a folder that may already exist."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    bucket = bucket_of(source)
    if bucket is not None:
        bucket.copy(source, target)


def remove_lake(root: Path) -> None:
    """Delete a lake's folder, and its store wherever it is."""
    shutil.rmtree(root)
    bucket = bucket_of(root)
    if bucket is not None:
        bucket.delete(root)


def write_in_the_past(location: Location, data: bytes, age_s: float) -> None:
    """Write a blob that has this age by its store's clock."""
    if location.is_local:
        blobs.write(location, data)
        then = time.time() - age_s
        for path in (location.local, location.local.parent):
            os.utime(path, (then, then))
        return
    bucket = next(bucket for bucket in _buckets if location.root.startswith(f"s3://{bucket.name}/"))
    with bucket.server.clock_moved(-age_s):
        blobs.write(location, data)


def bucket_of(folder: Path) -> Bucket | None:
    """The bucket with the stores of the lakes in a folder; None if they are in the folder."""
    above = {folder, *folder.parents}
    return next((bucket for bucket in _buckets if bucket.folders & above), None)
