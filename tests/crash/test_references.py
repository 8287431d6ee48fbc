"""The objects of ended processes are released, and no others."""

from __future__ import annotations

import pytest
from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import JavaGateway
from pyspark.sql import SparkSession

from tests.crash.references import VictimReferences


def is_bound(gateway: JavaGateway, name: str) -> bool:
    return bool(gateway.java_gateway_server.getGateway().getBindings().containsKey(name))


@pytest.mark.spark
def test_objects_without_an_owner_are_released_at_the_second_call(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    references = VictimReferences(gateway)
    references.release()
    owned, ownerless = gateway.jvm.java.lang.Object(), gateway.jvm.java.lang.Object()
    client = gateway._gateway_client
    ThreadSafeFinalizer.remove_finalizer(f"{client.address}{client.port}{ownerless._target_id}")
    references.release()
    assert is_bound(gateway, ownerless._target_id)
    references.release()
    assert not is_bound(gateway, ownerless._target_id)
    assert is_bound(gateway, owned._target_id)
    assert spark.range(2).count() == 2
