"""The temporary columns between message bytes and columns of data, each with its type and meaning."""

from __future__ import annotations

from dataclasses import dataclass

# CDCv2 messages.
BODY = "_body"
"""binary. The message without its framing; null if it has no body."""
BODY_REASON = "_body_reason"
"""string. Why there is no body, or null."""
SCHEMA_ID = "_schema_id"
"""bigint. The schema id of Confluent's framing."""
MESSAGE = "_m"
"""struct. The decoded message: the union `m`, and the sentinel `tail`."""
STATEMENT = "_u"
"""struct. One update of a message: data, time and diff; null if the message has none."""
PLACE = "_at"
"""int. The index of the update in its message."""
PARTITION = "_partition"
"""int. The partition from which the message was read."""
OFFSET = "_offset"
"""bigint. The offset of the message."""

# Keys and values of records: the columns `<target>`, `<target>_reason` and `<target>_detail` of a decoder.
KEY = "_key"
"""struct. The key's columns."""
VALUE = "_value"
"""struct. The value's columns."""


@dataclass(frozen=True)
class Target:
    """The output columns of a decoder of keys or values, and its temporary columns, which it drops at the end.

    The properties are the names of these columns; their docstrings state each column's type and meaning.

    Args:
        name: the name of the column that holds the decoded record, a struct; all other names begin with it.
    """

    name: str

    @property
    def reason(self) -> str:
        """String. Why the record cannot be used, or null."""
        return f"{self.name}_reason"

    @property
    def detail(self) -> str:
        """String. Details of the reason, for a person."""
        return f"{self.name}_detail"

    @property
    def body(self) -> str:
        """Binary. Avro: the record without its framing."""
        return f"{self.name}_body"

    @property
    def schema_id(self) -> str:
        """Bigint. Avro: the schema id of the framing."""
        return f"{self.name}_schema_id"

    @property
    def message(self) -> str:
        """Struct. Avro: the record `m`, and the sentinel `tail`."""
        return f"{self.name}_message"

    def of_writer(self, schema_id: int) -> Target:
        """Avro: the columns of the records that were written with one schema."""
        return Target(f"{self.name}_{schema_id}")

    @property
    def text(self) -> str:
        """String. JSON: the record's text."""
        return f"{self.name}_text"

    @property
    def is_wrapped(self) -> str:
        """Boolean. JSON: whether the text is an object with only a schema and a payload."""
        return f"{self.name}_wrapped"

    @property
    def plain(self) -> str:
        """Struct. JSON: a record without a schema, as read by `read_object`."""
        return f"{self.name}_plain"

    @property
    def payload(self) -> str:
        """Struct. JSON: a record with an embedded schema, as read by `read_object`."""
        return f"{self.name}_payload"

    @property
    def wire(self) -> str:
        """Struct. JSON: the columns before conversion."""
        return f"{self.name}_wire"

    @property
    def is_rounded(self) -> str:
        """Boolean. JSON: whether a number may have lost digits because it was read as a double."""
        return f"{self.name}_rounded"

    @property
    def plain_quoted(self) -> str:
        """Struct. JSON: like `plain`, but with numbers in quotes."""
        return f"{self.name}_plain_again"

    @property
    def payload_quoted(self) -> str:
        """Struct. JSON: like `payload`, but with numbers in quotes."""
        return f"{self.name}_payload_again"

    @property
    def broken(self) -> str:
        """String. JSON: why the text is not a record of the expected types, or null."""
        return f"{self.name}_broken"

    @property
    def is_suspect(self) -> str:
        """Boolean. JSON: whether the record may repeat a name, or hold a non-string where text is required."""
        return f"{self.name}_suspect"

    @property
    def variant(self) -> str:
        """Variant. JSON: the record, if it is suspect."""
        return f"{self.name}_parsed"

    @property
    def variant_parts(self) -> str:
        """Struct. JSON: the parts of a suspect record that must be text, as variants."""
        return f"{self.name}_variant_parts"

    @property
    def problem(self) -> str:
        """String. JSON: `<reason> <column>` of an unusable record, or null."""
        return f"{self.name}_note"

    @property
    def json_steps(self) -> tuple[str, ...]:
        """The temporary columns for JSON."""
        return (
            *(self.text, self.is_wrapped, self.plain, self.payload, self.wire),
            *(self.is_rounded, self.plain_quoted, self.payload_quoted),
            *(self.broken, self.is_suspect, self.variant, self.variant_parts, self.problem),
        )
