"""Releases the Java objects of victims, which cannot do so themselves: they are killed, and their JVM lives on."""

from __future__ import annotations

from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import JavaGateway


class VictimReferences:
    """The objects that the JVM of a gateway keeps for processes that have ended.

    Py4J keeps each object until the process that obtained it releases it. Without this class, the plans of hundreds of
    victims fill the heap, and the JVM spends most of its time on collecting garbage.
    """

    def __init__(self, gateway: JavaGateway) -> None:
        """Start without candidates."""
        self._gateway = gateway
        client = gateway._gateway_client
        self._prefix = f"{client.address}{client.port}"
        self._candidates: set[str] = set()

    def release(self) -> None:
        """Release the objects that no living process has, if they had none at the last call either.

        Call it only when no victim is alive. An object that another thread of this process has just obtained may not
        be registered yet, so it is spared until the next call.
        """
        jvm = self._gateway.jvm
        bound = self._gateway.java_gateway_server.getGateway().getBindings().keySet()
        names = {name for name in jvm.java.lang.String.join(",", bound).split(",") if name[1:].isdigit()}
        unowned = names - {key.removeprefix(self._prefix) for key in list(ThreadSafeFinalizer.finalizers)}
        if ended := unowned & self._candidates:
            bound.removeAll(jvm.org.apache.hadoop.util.StringUtils.getStringCollection(",".join(ended)))
        self._candidates = unowned - ended
