"""The format of tables, and the property by which versions before it refuse them.

Format 2 comes with markers (`acknowledged`), digests and sweep floors, which earlier versions neither write nor check.
They do not check the stated format either, but they refuse every table with `delta.setTransactionRetentionDuration`.
See docs/decisions/format.md.
"""

from __future__ import annotations

FORMAT, FORMAT_VERSION = "format", 2
"""The value that states a table's format, and the newest format that this version knows. A table without the value is
from before formats were stated. Format 1 was never released; it lacks the property."""
REFUSED_PROPERTY = "delta.setTransactionRetentionDuration"
"""Every version before format 2 refuses a table that has it, whatever it says, before it reads or writes."""
REFUSED_VALUE = "interval 36500 days"
"""A retention that forgets nothing. With any other value the table is refused, as it would lose its state."""
