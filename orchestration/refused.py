"""Collections with invalid settings: each is an asset that shows its error, with a check that fails until it is gone.

The rest of the lake loads and runs as if these collections were not in the file.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from dagster import (
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetKey,
    AssetSpec,
    asset_check,
)

from assets.names import Names
from tidelake.errors import ConfigurationError
from tidelake.settings.lake import load_valid_settings

GROUP = "invalid_settings"
CHECK = "settings_are_valid"
_DESCRIPTION = """**The settings of this collection are invalid.** None of its steps run; all other collections run.

```
{error}
```

Correct the settings, then reload this code location.
"""


def refused_keys(names: Names, refused: Iterable[str], valid: Iterable[str]) -> dict[str, AssetKey]:
    """Return the key of each collection whose settings are invalid, whatever its name is.

    >>> refused_keys(Names("shop"), ["My Orders", "orders"], ["my_orders"])
    {'My Orders': AssetKey(['shop', 'My_Orders']), 'orders': AssetKey(['shop', 'orders'])}
    """
    keys: dict[str, AssetKey] = {}
    for number, name in enumerate(refused):
        shown = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
        taken = {names.collection(other) for other in valid} | set(keys.values())
        key = names.collection(shown)
        keys[name] = key if key not in taken else names.collection(f"{shown}_{number}")
    return keys


def refused_spec(key: AssetKey, error: ConfigurationError) -> AssetSpec:
    """Return the asset that stands for a collection whose settings are invalid."""
    return AssetSpec(
        key, group_name=GROUP, description=_DESCRIPTION.format(error=error), metadata={"error": str(error)}
    )


def refused_check(key: AssetKey, name: str, file: Path) -> AssetChecksDefinition:
    """Return the check of a collection whose settings are invalid: it reads the file again.

    Args:
        key: the key of its asset.
        name: its name in the file.
        file: the settings.
    """

    @asset_check(asset=key, name=CHECK, description="The collection's block has no error.")
    def settings_are_valid() -> AssetCheckResult:
        error = load_valid_settings(file).refused.get(name)
        if error is None:
            return AssetCheckResult(passed=True, description="valid now: reload the code location to run it")
        return AssetCheckResult(passed=False, severity=AssetCheckSeverity.ERROR, description=str(error))

    return settings_are_valid
