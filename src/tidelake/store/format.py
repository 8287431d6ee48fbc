"""The format of tables, and the property that makes earlier releases of Tidelake refuse them.

Format 2 comes with markers (`acknowledged`), digests and sweep floors, which earlier releases neither write nor check.
Earlier releases do not check the format either, but they refuse a table with `delta.setTransactionRetentionDuration`.
Formats 3 and 4 apply only to the catalog. Format 3 has publications, which earlier releases would mistake for
collections; in format 4, names and collections have logs of their own. Format 5 is for the handles of collections that
were ever held, renamed or dropped, and for updates tables from which retention has removed rows: earlier releases
support none of this, and refuse the format. See docs/decisions/format.md.
"""

from __future__ import annotations

FORMAT, FORMAT_VERSION = "format", 2
"""The value that states a table's format, and the format that every table is upgraded to. A table without the
value was created before formats were stated. Tables of format 1, which was never released, lack the property."""
CATALOG_VERSION = 4
"""The format of catalogs to which rows are no longer added."""
HANDLES_VERSION = NEWEST_VERSION = 5
"""The format of handles after the first hold, renaming or drop. It is the newest format that this release supports."""
RETENTION_VERSION = 5
"""The format of `updates/` once retention has removed a row: earlier releases would report it as damaged."""
DIVIDED = "divided"
"""The value by which a catalog states that it no longer has rows: all of them were copied to names and collections."""
REFUSED_PROPERTY = "delta.setTransactionRetentionDuration"
"""Every release before format 2 refuses a table with this property, whatever its value, before any read or write."""
REFUSED_VALUE = "interval 36500 days"
"""A retention that forgets nothing. With any other value, a table would lose its state: it is reported as damaged."""
