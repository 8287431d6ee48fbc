"""A session for queries that Spark should plan once, before it runs them.

With adaptive plans, Spark runs the small side of a join first, and then plans the rest again. That helps if sizes are
unknown. A tick always joins its messages with a few thousand transactions, and its plan is long: planning it
twice took a tenth of the tick's time.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

_ADAPTIVE = "spark.sql.adaptive.enabled"
_sessions: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()
_lock = Lock()


def with_fixed_plans(spark: SparkSession) -> SparkSession:
    """Return a session of the same application, with the same settings, that plans each query once.

    It is the same session each time, or `spark` itself if its plans are already fixed. Settings that `spark` receives
    later do not reach that session.
    """
    if spark.conf.get(_ADAPTIVE) == "false":
        return spark
    with _lock:
        if (fixed := _sessions.get(spark)) is None:
            fixed = spark.newSession()
            for name, value in spark.conf.getAll.items():
                if spark.conf.isModifiable(name):
                    fixed.conf.set(name, value)
            fixed.conf.set(_ADAPTIVE, "false")
            _sessions[spark] = fixed
        return fixed
