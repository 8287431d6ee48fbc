"""The automation condition for assets downstream of a lake: they follow the seals."""

from dagster import AssetCheckKey, AssetKey, AutomationCondition


def follows_seal() -> AutomationCondition[AssetKey | AssetCheckKey]:
    """Return the condition that runs an asset after a collection's upper, or the time of its `current`, has moved.

    A tick that seals nothing new requests nothing: the data version of a collection is its upper, and that of its
    `current` is the time that the table shows. While a blocking check fails, nothing is requested either.
    """
    moved = AutomationCondition.any_deps_match(AutomationCondition.data_version_changed())
    return (
        (moved | AutomationCondition.newly_missing()).since_last_handled()
        & ~AutomationCondition.any_deps_missing()
        & AutomationCondition.all_deps_blocking_checks_passed()
        & ~AutomationCondition.any_deps_in_progress()
        & ~AutomationCondition.in_progress()
    ).with_label("follows_seal")
