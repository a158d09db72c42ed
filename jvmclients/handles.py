"""Java functions composed from method handles, so that the code that handles a record runs inside the JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Handles:
    """Composes Java functions from method handles, for one JVM.

    Args:
        gateway: of the JVM.
        record: class of the records that the functions take.
        value: its method that returns the value.
    """

    def __init__(self, gateway: Any, record: str = "kafka.message.MessageAndMetadata", value: str = "message") -> None:
        self._gateway = gateway
        self._record_name, self._value_name = record, value
        self._invoke = gateway.jvm.java.lang.invoke
        self._lookup = self._invoke.MethodHandles.publicLookup()
        self._object = self._class("java.lang.Object")
        self._void = gateway.jvm.java.lang.Void.TYPE
        self._row = self._class("[Ljava.lang.Object;")

    def rows_into(self, queue: Any) -> Any:
        """A function that adds topic, partition, offset, key and value of a record to a queue."""
        add = self._lookup.findVirtual(
            self._class("java.util.Collection"),
            "add",
            self._invoke.MethodType.methodType(self._gateway.jvm.java.lang.Boolean.TYPE, self._object),
        ).bindTo(queue)
        rows = self._rows(self._getters())
        record = self._class(self._record_name)
        return self._invoke.MethodHandles.filterReturnValue(
            rows.asType(self._invoke.MethodType.methodType(self._object, record)), add
        )

    def lines_into(self, output: Path) -> Any:
        """A function that appends the same, and the value of ``System.nanoTime()``, to a file at once."""
        java = self._gateway.jvm.java
        text = self._class("java.lang.String")
        as_text = self._lookup.findStatic(
            self._class("java.util.Arrays"), "deepToString", self._invoke.MethodType.methodType(text, self._row)
        )
        file = java.io.PrintStream(java.io.FileOutputStream(str(output), True), True)
        write = self._lookup.findVirtual(
            self._class("java.io.PrintStream"), "println", self._invoke.MethodType.methodType(self._void, text)
        ).bindTo(file)
        handles = self._invoke.MethodHandles
        lines = handles.filterReturnValue(self._rows([*self._getters(), self._now()]), as_text)
        return handles.filterReturnValue(lines, write)

    def _getters(self) -> list[Any]:
        """Functions that get topic, partition, offset, key and value out of a record."""
        record = self._class(self._record_name)
        primitive = self._gateway.jvm.java.lang
        results = {
            "topic": self._class("java.lang.String"),
            "partition": primitive.Integer.TYPE,
            "offset": primitive.Long.TYPE,
            "key": self._object,
            self._value_name: self._object,
        }
        return [
            self._lookup.findVirtual(record, name, self._invoke.MethodType.methodType(result))
            for name, result in results.items()
        ]

    def _now(self) -> Any:
        """A function of a record that gives the time."""
        clock = self._lookup.findStatic(
            self._class("java.lang.System"),
            "nanoTime",
            self._invoke.MethodType.methodType(self._gateway.jvm.java.lang.Long.TYPE),
        )
        record = self._class(self._record_name)
        return self._invoke.MethodHandles.dropArguments(clock, 0, self._array(self._class("java.lang.Class"), [record]))

    def _rows(self, functions: list[Any]) -> Any:
        """A function that makes a row of the results of functions of a record."""
        record = self._class(self._record_name)
        handles = self._invoke.MethodHandles
        as_object = self._invoke.MethodType.methodType(self._object, record)
        columns = [function.asType(as_object) for function in functions]
        collect = handles.identity(self._row).asCollector(self._row, len(columns))
        collect = handles.filterArguments(
            collect, 0, self._array(self._class("java.lang.invoke.MethodHandle"), columns)
        )
        every_time = self._array(self._gateway.jvm.java.lang.Integer.TYPE, [0] * len(columns))  # all from argument 0
        return handles.permuteArguments(collect, self._invoke.MethodType.methodType(self._row, record), every_time)

    def bound(self, interface: str, method: str, receiver: Any, argument: Any) -> Any:
        """The call ``receiver.method(argument)`` of a method that takes a Consumer and returns nothing."""
        takes = self._class("java.util.function.Consumer")
        kind = self._invoke.MethodType.methodType(self._void, takes)
        return self._lookup.findVirtual(self._class(interface), method, kind).bindTo(receiver).bindTo(argument)

    def interface(self, name: str, handle: Any) -> Any:
        """An object of an interface with one method, which calls the handle."""
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self._class(name), handle)

    def _class(self, name: str) -> Any:
        return self._gateway.jvm.java.lang.Class.forName(name)

    def _array(self, kind: Any, values: list[Any]) -> Any:
        array = self._gateway.jvm.java.lang.reflect.Array.newInstance(kind, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array
