"""The public interface: a lake and its collections, as `collections.yaml` describes them. The command line uses it too.

Methods that need Spark take a session; no other method starts a JVM. Importing the package does not import Spark.
"""

from __future__ import annotations

from tidelake.lake.answers import LateReport, Places
from tidelake.lake.collection import LakeCollection
from tidelake.lake.lake import CONFIG_FILE, CONFIG_VARIABLE, Lake

__all__ = ["CONFIG_FILE", "CONFIG_VARIABLE", "Lake", "LakeCollection", "LateReport", "Places"]
