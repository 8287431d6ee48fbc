"""How the command line reaches the jobs: they are `jobs` in a checkout, and `tidelake.app.jobs` in a wheel.

The build of a wheel rewrites the imports; see docs/decisions/wheel.md.
"""

from __future__ import annotations

import sys

from tidelake.errors import NoCheckout
from tidelake.spark.installation import CHECKOUT, PACKAGED_JOBS


def find_jobs() -> None:
    """Make the jobs importable. An editable installation finds only `src`, so the checkout is added to `sys.path`.

    Raises:
        NoCheckout: neither a wheel nor a checkout provides the jobs.
    """
    if PACKAGED_JOBS.is_dir():
        return
    if CHECKOUT is None or not (CHECKOUT / "jobs" / "ingest.py").is_file():
        raise NoCheckout(str(CHECKOUT or PACKAGED_JOBS.parent))
    if str(CHECKOUT) not in sys.path:
        sys.path.append(str(CHECKOUT))
