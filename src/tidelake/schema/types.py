"""The registry of Avro types: each scalar type is declared once, with all its properties.

A new logical type is one entry in `_DECLARED`, and one in `tidelake.decode.types.SPARK_TYPES`, which defines its
handling in Spark. An undeclared logical type is treated as its primitive type. Records, arrays and unions are not
scalar; the code that walks through a schema handles them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import ModuleType
from typing import Any

from tidelake.protocol.order import INT64_MAX, INT64_MIN
from tidelake.schema.calendar import days_of_text, micros_of_text, millis_of_text

DECIMAL = "decimal"
DECIMAL_PRECISION_MAX = 38
ZONELESS = "local-timestamp"
"""Logical types with this prefix are refused: not every Delta reader has a type for them."""
_MICROS_PER_MILLI = 1000

ArrowFactory = Callable[[ModuleType, int, int], Any]
"""Creates an Arrow type from the module `pyarrow`, a precision and a scale; this package does not import Arrow."""


class Family(Enum):
    """The kind of a value in memory and in JSON."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    REAL = "real"
    TEXT = "text"
    SYMBOL = "symbol"
    BINARY = "binary"
    DECIMAL = "decimal"
    """An unscaled value, as big-endian bytes in two's complement."""


@dataclass(frozen=True, slots=True)
class ConnectForm:
    """One way in which Kafka Connect or Debezium sends a type.

    Args:
        wire: the name of the wire type.
        conversion: how a value is converted to a column's value; see `tidelake.schema.connect.WireType`.
        names: Connect's names (`connect.name`) of the types sent in this form.
        infinite: Debezium's values for PostgreSQL's `infinity` and `-infinity`.
    """

    wire: str
    conversion: str
    names: tuple[str, ...] = ()
    infinite: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One scalar type.

    Args:
        base: Avro's primitive type, `enum` or `fixed`; it alone determines how a value is encoded.
        family: the kind of its values.
        arrow: creates the type of the table's column.
        logical: the logical type; empty for a plain type.
        bounds: for an integer, the minimum and the maximum that a column holds.
        number_bytes_max: for an integer, the maximum number of encoded bytes.
        float_format: for a real number, its format in the module `struct`.
        default_types: the Python types of a default in a schema; empty if defaults are not supported.
        promotes_to: the wider types that a reader may use; at worst, precision is lost.
        parse: converts ISO text to the encoded integer, or invalid text to None. It is None itself if only integers are
            accepted.
        text_form: the accepted notation, for an error message.
        connect_types: Connect's own types that correspond to this type.
        connect_forms: the forms in which Connect sends a value to be converted; empty if it sends the value itself.
        connect_column_type: the logical type of the column into which values in these forms are converted.
    """

    base: str
    family: Family
    arrow: ArrowFactory
    logical: str = ""
    bounds: tuple[int, int] = (0, 0)
    number_bytes_max: int = 0
    float_format: str = ""
    default_types: tuple[type, ...] = ()
    promotes_to: frozenset[str] = frozenset()
    parse: Callable[[str], int | None] | None = None
    text_form: str = ""
    connect_types: tuple[str, ...] = ()
    connect_forms: tuple[ConnectForm, ...] = ()
    connect_column_type: str = ""

    @property
    def is_canonical(self) -> bool:
        """Whether equal values always have equal bytes: NaN, zero and padded decimals have several encodings."""
        return self.family is not Family.REAL and not (self.family is Family.DECIMAL and self.base == "bytes")

    def with_logical(self, logical: str, **changes: Any) -> ScalarType:
        """Return a logical type based on this one, with the same encoding but without promotions and defaults."""
        plain: dict[str, Any] = {"default_types": (), "promotes_to": frozenset(), "connect_types": ()}
        return replace(self, logical=logical, **(plain | {"connect_column_type": logical} | changes))


_INT = ScalarType(
    base="int",
    family=Family.INTEGER,
    arrow=lambda pa, precision, scale: pa.int32(),
    bounds=(-(2**31), 2**31 - 1),
    number_bytes_max=5,
    default_types=(int,),
    promotes_to=frozenset({"long", "float", "double"}),
    text_form="int",
    connect_types=("int8", "int16", "int32"),
)
_LONG = ScalarType(
    base="long",
    family=Family.INTEGER,
    arrow=lambda pa, precision, scale: pa.int64(),
    bounds=(INT64_MIN, INT64_MAX),
    number_bytes_max=10,
    default_types=(int,),
    promotes_to=frozenset({"float", "double"}),
    text_form="long",
    connect_types=("int64",),
)
_BYTES = ScalarType("bytes", Family.BINARY, lambda pa, precision, scale: pa.binary(), connect_types=("bytes",))
_FIXED = ScalarType("fixed", Family.BINARY, lambda pa, precision, scale: pa.binary())
_TIMESTAMP_TEXT = ("string", "timestamp_text")
_ISO_TIMESTAMP = "an integer, or YYYY-MM-DDThh:mm:ss.ffffffZ"
_DECIMAL_FORMS = (
    ConnectForm("bytes", "decimal_bytes", ("org.apache.kafka.connect.data.Decimal",)),
    ConnectForm("string", "decimal_text"),
    ConnectForm("double", "decimal_text"),
)

_DECLARED = (
    ScalarType(
        base="boolean",
        family=Family.BOOLEAN,
        arrow=lambda pa, precision, scale: pa.bool_(),
        default_types=(bool,),
        connect_types=("boolean",),
    ),
    _INT,
    _LONG,
    ScalarType(
        base="float",
        family=Family.REAL,
        arrow=lambda pa, precision, scale: pa.float32(),
        float_format="<f",
        default_types=(int, float),
        promotes_to=frozenset({"double"}),
        connect_types=("float", "float32"),
    ),
    ScalarType(
        base="double",
        family=Family.REAL,
        arrow=lambda pa, precision, scale: pa.float64(),
        float_format="<d",
        default_types=(int, float),
        connect_types=("double", "float64"),
    ),
    _BYTES,
    ScalarType(
        base="string",
        family=Family.TEXT,
        arrow=lambda pa, precision, scale: pa.string(),
        default_types=(str,),
        connect_types=("string",),
    ),
    ScalarType("enum", Family.SYMBOL, lambda pa, precision, scale: pa.string()),
    _FIXED,
    _INT.with_logical(
        "date",
        arrow=lambda pa, precision, scale: pa.date32(),
        parse=days_of_text,
        text_form="date: days since 1970, or YYYY-MM-DD",
        connect_forms=(
            ConnectForm(
                "int",
                "date",
                names=("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"),
                # Debezium 3.3 swaps these two: unlike with timestamps, the number for `infinity` is the smaller one.
                infinite=("-2147472693", "-2147472692"),
            ),
        ),
    ),
    _LONG.with_logical(
        "timestamp-millis",
        arrow=lambda pa, precision, scale: pa.timestamp("us", "UTC"),
        bounds=(-(-INT64_MIN // _MICROS_PER_MILLI), INT64_MAX // _MICROS_PER_MILLI),
        parse=millis_of_text,
        text_form=f"timestamp-millis: {_ISO_TIMESTAMP}",
        connect_forms=(
            ConnectForm(
                "long",
                "timestamp_millis",
                names=("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"),
                infinite=("9223372036825200", "-9223372036832400"),
            ),
            ConnectForm(*_TIMESTAMP_TEXT),
        ),
        connect_column_type="timestamp-micros",
    ),
    _LONG.with_logical(
        "timestamp-micros",
        arrow=lambda pa, precision, scale: pa.timestamp("us", "UTC"),
        parse=micros_of_text,
        text_form=f"timestamp-micros: {_ISO_TIMESTAMP}",
        connect_forms=(
            ConnectForm(
                "long",
                "timestamp_micros",
                names=("io.debezium.time.MicroTimestamp",),
                infinite=("9223372036825200000", "-9223372036832400000"),
            ),
            ConnectForm(
                *_TIMESTAMP_TEXT,
                names=("io.debezium.time.ZonedTimestamp",),
                infinite=("infinity", "-infinity"),
            ),
        ),
    ),
    _BYTES.with_logical(
        DECIMAL,
        family=Family.DECIMAL,
        arrow=lambda pa, precision, scale: pa.decimal128(precision, scale),
        connect_forms=_DECIMAL_FORMS,
    ),
    _FIXED.with_logical(
        DECIMAL,
        family=Family.DECIMAL,
        arrow=lambda pa, precision, scale: pa.decimal128(precision, scale),
    ),
)

SCALARS: Mapping[tuple[str, str], ScalarType] = {(scalar.base, scalar.logical): scalar for scalar in _DECLARED}
"""All declared types, by base and logical type."""
PRIMITIVES = frozenset(scalar.base for scalar in _DECLARED) - {"enum", "fixed"}


def scalar_type(base: str, logical: Any = None) -> ScalarType:
    """Return the type of a base and a logical type; an undeclared logical type is treated as its base.

    >>> scalar_type("long", "timestamp-micros").logical, scalar_type("long", "time-micros") is scalar_type("long")
    ('timestamp-micros', True)
    """
    return SCALARS.get((base, logical or "")) or SCALARS[base, ""]


def scalar_of(kind: Mapping[str, Any]) -> ScalarType:
    """Return the type of a resolved schema that is not a record, an array or a union."""
    return scalar_type(kind["type"], kind.get("logicalType"))


def is_promotion(written: str, read: str) -> bool:
    """Return whether a plain type can be read as another, wider type.

    >>> is_promotion("int", "double"), is_promotion("long", "int"), is_promotion("array", "long")
    (True, False, False)
    """
    scalar = SCALARS.get((written, ""))
    return scalar is not None and read in scalar.promotes_to
