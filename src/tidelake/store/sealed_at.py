"""When times were sealed, by the clocks of the processes that sealed them. Needs no JVM."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from tidelake.storage.arrow import integers
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.layout import BINDINGS_SCHEMA, PROOF_RUN, PROOFS_SCHEMA, TIME


def last_sealed_by(collection: Collection, after: int, moment_ms: int) -> int | None:
    """Return the last time such that it and every earlier time were sealed by a given moment.

    Where the source states the times, the moment is that of the proof, just before the seal commits. So the contents AS
    OF the returned time are what could be read at `moment_ms`. A time that was proven twice counts as sealed by the
    second proof: the first seal may have been stopped before its commit.

    Where ingest mints the times, the moment is that at which the tick began, from which its time is minted. So the
    returned time is the last one at or before `moment_ms`, if the clock was right, even if its tick committed later.

    Args:
        collection: the collection.
        after: only times after this one are considered.
        moment_ms: the moment, in milliseconds since 1970.

    Returns:
        None if no time after `after` was sealed by then.

    Cost: two columns of the files in `proofs/` or `bindings/`, from `after` to the first time that was sealed later.
    """
    mints_times = collection.entry.mints_times
    table, schema = (
        (collection.paths.bindings, BINDINGS_SCHEMA) if mints_times else (collection.paths.proofs, PROOFS_SCHEMA)
    )
    files = [
        file
        for file in OpenTable(table).files()
        if (mints_times or file.run.startswith(PROOF_RUN)) and (file.time_max is None or file.time_max > after)
    ]
    sealed, first_later = [np.zeros(0, np.int64)], None
    for file in sorted(files, key=lambda file: -1 if file.time_min is None else file.time_min):
        if first_later is not None and file.time_min is not None and file.time_min > first_later:
            break
        rows = read_rows(table, [file], schema, [TIME, "at_ms"], pc.field(TIME) > after)
        times = integers(rows[TIME])
        sealed.append(times)
        later = times[integers(rows["at_ms"]) > moment_ms]
        if later.size:
            first_later = int(later.min()) if first_later is None else min(first_later, int(later.min()))
    times = np.concatenate(sealed)
    if first_later is not None:
        times = times[times < first_later]
    return int(times.max()) if times.size else None
