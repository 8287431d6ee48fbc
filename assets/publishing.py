"""The asset `published`: a collection stated as CDCv2 in a topic, if its settings have a `publish` block."""

import time as clock
from collections.abc import Iterator

from dagster import AssetExecutionContext, AssetsDefinition, DataVersion, MaterializeResult, asset

from assets.attributes import Attributes
from assets.names import Names
from assets.steps import lake_of, opened, options_of, step_of
from tidelake.settings.collection import CollectionSettings


def build_published(names: Names, settings: CollectionSettings, shared: Attributes) -> list[AssetsDefinition]:
    """Build the asset of a collection's published topic; none if it is not published.

    Args:
        names: the names of the lake.
        settings: the collection.
        shared: the attributes that all assets of the collection have.
    """
    if settings.publish is None:
        return []
    topic = settings.publish.to

    @asset(
        key=names.published(settings.name),
        deps=[names.collection(settings.name)],
        pool=names.pool(settings.name),
        required_resource_keys={names.resource, names.options},
        metadata={"topic": topic, "source": settings.publish.source},
        description=(
            f"The collection as CDCv2 in the topic `{topic}`: consolidated updates, and progress statements with "
            "the number of updates at each time. Only sealed updates are stated, and nothing that the topic already "
            "has is stated again."
        ),
        output_required=False,
        **shared,
    )
    def published(context: AssetExecutionContext) -> Iterator[MaterializeResult[None]]:
        from jobs.publish import Asked, publish_collection

        options = options_of(context.op_execution_context, names)
        if not options.selects(settings.name):
            context.log.info("not selected by the options of this run")
            return
        with step_of(context.op_execution_context, options):
            lake = lake_of(context.op_execution_context, names)
            own = lake.settings_of(settings.name).publish
            if own is None:
                context.log.info("the settings no longer name a topic")
                return
            with opened(lake, settings.name):
                started = clock.monotonic()
                report = publish_collection(lake.session(), lake.settings, settings.name, Asked.by_settings(own))
        metadata = {
            "frontier": report.frontier,
            "closed": report.closed,
            "messages": report.messages,
            "updates": report.updates,
            "statements": report.statements,
            "publish_s": round(clock.monotonic() - started, 3),
        }
        version = f"{report.frontier}, closed" if report.closed else str(report.frontier)
        yield MaterializeResult(metadata=metadata, data_version=DataVersion(version))

    return [published]
