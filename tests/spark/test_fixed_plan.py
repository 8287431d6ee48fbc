"""In a session with fixed plans, a query is planned only once."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.spark.fixed_plan import with_fixed_plans

pytestmark = pytest.mark.spark


@pytest.fixture
def adaptive(spark: SparkSession) -> SparkSession:
    """A session as users have it, with a time zone of its own."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return session


def plan_of_a_join(spark: SparkSession) -> str:
    """The plan of a join whose small side is sent to each task."""
    joined: DataFrame = spark.range(9).join(F.broadcast(spark.range(3)), "id", "left")
    return str(joined._jdf.queryExecution().executedPlan())


def test_a_join_is_planned_once_with_the_settings_of_the_session(adaptive: SparkSession) -> None:
    fixed = with_fixed_plans(adaptive)
    assert fixed.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert "AdaptiveSparkPlan" in plan_of_a_join(adaptive)
    assert "AdaptiveSparkPlan" not in plan_of_a_join(fixed)
    assert adaptive.conf.get("spark.sql.adaptive.enabled") == "true"


def test_each_session_has_only_one_session_with_fixed_plans(adaptive: SparkSession) -> None:
    fixed = with_fixed_plans(adaptive)
    assert with_fixed_plans(adaptive) is fixed
    assert with_fixed_plans(fixed) is fixed
