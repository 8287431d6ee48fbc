"""The cause of each error, and what to do about it. `tidelake.errors` has the facts and hints."""

from __future__ import annotations

from typing import NamedTuple

from tidelake import errors
from tidelake.errors import TidelakeError


class Entry(NamedTuple):
    """One error: what usually causes it, what to do, and the commands, beginning with those that change nothing."""

    cause: str
    act: str
    commands: tuple[str, ...] = ()


_STATUS = "tidelake status NAME"
_DOCTOR = "tidelake doctor"
_VERIFY = "tidelake verify NAME --deep"
_REPAIR = "tidelake repair NAME"
_RESTORE = "tidelake repair NAME --apply"
_COUNT = "tidelake resolve count NAME --time T --count N --reason …"
_DISCARD = 'tidelake resolve discard NAME --time T --statement \'{"data": {…}, "diff": 1}\' --reason …'
_NEW_TOPIC = "tidelake publish NAME --to NEW_TOPIC [--kafka]"
_GIVE_UP = "tidelake publish NAME --to TOPIC [--kafka] --stop"

ENTRIES: dict[type[TidelakeError], Entry] = {
    # The source contradicts itself, or breaks the protocol.
    errors.MalformedMessage: Entry(
        "The writer of the stream has a bug, or something that is not a message was sent to the topic.",
        "The message is in quarantine, and ingest continues. If the updates in it are announced, their times wait: "
        "have the source send a correct message, or decide on the count. Otherwise, acknowledge the message.",
        (
            "tidelake quarantine NAME",
            _COUNT,
            "tidelake resolve quarantine NAME --offsets TOPIC:PARTITION:OFFSET --reason …",
        ),
    ),
    errors.ConflictingDiff: Entry(
        "Two writers of the stream disagree, or one was restarted from an inconsistent state.",
        "Ask the owner of the source which diff is right. Discard the other statement, then decide on the count if "
        "fewer updates remain than were announced. Earlier times can still be sealed.",
        (_STATUS, _DISCARD, _COUNT),
    ),
    errors.ConflictingCount: Entry(
        "Two progress statements announce different counts for one time. A statement that covers the time "
        "without listing it announces 0.",
        "Ask the owner of the source how many updates there are, then decide on the count.",
        (_STATUS, _COUNT),
    ),
    errors.OverCount: Entry(
        "The source sent an update that it did not announce, or announced too few updates.",
        "Ask the owner of the source. Decide on the greater count, or discard the surplus update.",
        (_STATUS, _COUNT, _DISCARD),
    ),
    errors.TransactionCut: Entry(
        "The connector was restarted while the transaction was open, and resumed after its first changes. In Debezium "
        "3.3.1, this happens if the last saved offset is the END before the transaction. Or the connector leaves out "
        "some of what PostgreSQL publishes, such as a table or TRUNCATE commands, and the transaction began with "
        "such a change.",
        "Let the connector take a new snapshot of all its tables: changes to any of them may be missing. Then accept "
        "the events that were sent: decide on the announced count. The snapshot corrects tables with a key; read "
        "tables without a key into new collections. If the connector leaves something out, write "
        "`captures_publication: false`, or let it create a publication with `publication.autocreate.mode=filtered`.",
        (_STATUS, "tidelake explain NAME --time T", _COUNT),
    ),
    errors.EnvelopeBreach: Entry(
        "The topic has statements that the family of the collection does not allow, such as a negative diff in an "
        "append-only collection, or two rows for one key. With transactions, an event may have come again with other "
        "contents, because two connectors write to the topic or its messages were changed.",
        "Discard the wrong statement, then decide on the count. If such statements are normal for this topic, ingest "
        "it into a new collection with another envelope; no envelope allows different contents of one event.",
        (_STATUS, _DISCARD, _COUNT),
    ),
    # Bytes cannot be decoded.
    errors.CodecError: Entry(
        "A message was written with another schema or in another format, or it was damaged.",
        "The message is in quarantine, and ingest continues. Check `schema`, `encoding` and `schema_ids` of the "
        "collection. If the updates in the message are announced, have the source send them again, or decide on the "
        "count. Otherwise, acknowledge the message.",
        ("tidelake quarantine NAME", "tidelake resolve quarantine NAME --offsets TOPIC:PARTITION:OFFSET --reason …"),
    ),
    # A topic or a registry is unreachable or broken.
    errors.TopicGap: Entry(
        "Retention deleted messages before they were ingested, or a file of the topic was removed.",
        "Everything before the gap was ingested. Restore the messages. If they are lost for good, accept the gap; "
        "times with updates in it wait for a decision on their counts. If the topic ends before the next offset to "
        "read, the messages of the gap were ingested as well: accepting it loses only what is later written at these "
        "offsets.",
        (_STATUS, "tidelake resolve gap NAME --offsets TOPIC:PARTITION:FROM-TO --reason …"),
    ),
    errors.TopicChanged: Entry(
        "The topic was deleted and created again, truncated, or restored from an older copy; or the settings name "
        "a different topic than before.",
        "Correct the topic or its name. If the new topic is the right one, accept it; messages that were not read "
        "before are lost.",
        (_STATUS, "tidelake resolve topic NAME --topic TOPIC --reason …"),
    ),
    errors.EventBlocked: Entry(
        "The connector ran without `provide.transaction.metadata=true` for a while, so it is unknown which transaction "
        "the event belongs to.",
        "Correct the connector's settings. To continue without the event, accept its offset as a gap: the event goes "
        "to the quarantine, and the collection lacks its change. If there are many such events, read the topic into a "
        "new collection.",
        (_STATUS, "tidelake resolve gap NAME --offsets TOPIC:PARTITION:OFFSET --reason …"),
    ),
    errors.SnapshotBySignal: Entry(
        "A signal asked for a snapshot, incremental or blocking. Its rows contain changes of transactions that come "
        "later in the topic, so no time has exactly these contents.",
        "Continue without the rows: a decision leaves out all events without a transaction in a range of offsets. If "
        "the table needs a snapshot, stop the connector, delete its offsets, and resume it: that snapshot is exact.",
        (_STATUS, "tidelake resolve gap NAME --offsets TOPIC:PARTITION:FROM-TO --reason …"),
    ),
    errors.SnapshotUnfinished: Entry(
        "The connector was killed in the middle of a snapshot. When the connector began another one, the table no "
        "longer had rows; or the connector was configured to continue without a snapshot. So the missing rows are "
        "unknown.",
        "If the table was empty, discard the abandoned snapshot with the count 0. Otherwise let the connector take a "
        "snapshot again: the abandoned snapshot is then discarded.",
        (_STATUS, "tidelake resolve count NAME --time LSN --count 0 --reason …"),
    ),
    errors.SnapshotRepeated: Entry(
        "The connector lost its offsets, or somebody asked for a snapshot, and the table has no primary key.",
        "If the connector lost no change before the snapshot, continue without the snapshot: decide on the count 0. "
        "Otherwise read the topic into a new collection. Better: give the table a primary key.",
        (_STATUS, "tidelake resolve count NAME --time LSN --count 0 --reason …"),
    ),
    errors.TransactionWentBack: Entry(
        "The database was restored from a backup, or the connector follows another server now, so log positions begin "
        "again; or an END was delayed, and came after a later one.",
        "Data already read stays valid. Let the connector write to new topics, with another `topic.prefix`, and read "
        "these into new collections. If only this END came late, leave out the events of its transaction.",
        (_STATUS, "tidelake times NAME", "tidelake resolve transaction NAME --transaction ID --reason …"),
    ),
    errors.TransactionTopicDivided: Entry(
        "Kafka created the topic with its default number of partitions, or a file of the topic states a partition "
        "other than 0.",
        "Stop the connector, recreate the topic with one partition, and start the connector with a new snapshot.",
        (_DOCTOR,),
    ),
    errors.TopicMissing: Entry(
        "The topic was deleted, was never created, or its name is spelled differently.",
        "Create the topic, or correct `topic` in the settings; then run ingest again.",
        (_STATUS,),
    ),
    errors.FolderMissing: Entry(
        "The folder of a file topic was moved or deleted, a volume is not mounted, or the name is spelled differently.",
        "Mount or create the folder, or correct `topics` or `topic` in the settings; then run ingest again.",
        (_STATUS,),
    ),
    errors.MalformedTopic: Entry(
        "The folder of a file topic contains a file that does not belong in a topic, or one that cannot be read.",
        "Remove or correct the file that the error names. If it cannot be read, do not remove it, as it may have "
        "messages: correct its permissions, or repair the disk or the mount. Nothing after it was read.",
        (_STATUS,),
    ),
    errors.MalformedLine: Entry(
        "A line was cut off while it was written, or was edited by hand.",
        "Correct the line that the error names. Nothing after it was read.",
        (_STATUS,),
    ),
    errors.RepeatedOffset: Entry(
        "A file was copied within the topic, or two processes write to one partition.",
        "Remove the copied file, or give one of the two messages another offset. Nothing after that offset was read.",
        (_STATUS,),
    ),
    errors.TopicUnreachable: Entry(
        "The brokers are down, a firewall or DNS prevents the connection, or the settings or credentials are wrong.",
        "Nothing is lost: the next run continues from here. Check the brokers, then `bootstrap_servers`, the "
        "certificates and the password. This is urgent only if retention may delete unread messages.",
        (_STATUS,),
    ),
    errors.TopicUnwritable: Entry(
        "The brokers are down, the topic does not allow writing, or the messages are too large for it.",
        "Records that were accepted stay in the topic. Correct the cause; then publish the collection again, or play "
        "the recording into a new topic.",
        ("tidelake publish NAME --to TOPIC --kafka", "tidelake topic --help"),
    ),
    errors.PublishedTopicForeign: Entry(
        "Another producer was pointed at the topic, or a collection of this or another lake is published to it, too.",
        "Nothing more is written to the topic, and the hold of the collection stays where it is. Find the other "
        "writer, and publish to a topic that nobody else may write to. Then give up the old publication.",
        (_STATUS, _NEW_TOPIC, _GIVE_UP),
    ),
    errors.PublishedTopicCut: Entry(
        "Retention deleted messages before the next run read them back, or a file of the topic was removed.",
        "Give the topic a retention that suits its readers. Readers that had read everything before the gap can "
        "continue if its times are stated again, which --accept-cut does. New readers need a new topic. If the topic "
        "still has earlier messages, a file is missing: restore it, or publish to a new topic and give up this one.",
        ("tidelake publish NAME --to TOPIC [--kafka] --accept-cut", _NEW_TOPIC, _GIVE_UP),
    ),
    errors.PublishedTopicRecreated: Entry(
        "The topic was deleted and created again, truncated, or restored from an older copy; or a folder was replaced.",
        "Nothing was written. Publish to a new topic, or give up the old publication and start over in the empty "
        "topic.",
        (_GIVE_UP, "tidelake publish NAME --to TOPIC [--kafka]"),
    ),
    errors.PublishedTopicNotEmpty: Entry(
        "The topic belongs to something else, or an earlier publication to it was given up.",
        "Nothing was written. Choose a topic that is empty.",
        (_NEW_TOPIC,),
    ),
    errors.PublishedTopicContradicts: Entry(
        "The store was restored from an older copy and has read its sources differently since, or the messages of the "
        "topic were changed.",
        "Readers of the topic stop at what the error names, or have read what the collection does not have. Publish "
        "to a new topic, and give up this one.",
        (_STATUS, _NEW_TOPIC, _GIVE_UP),
    ),
    errors.PublishedTopicBehind: Entry(
        "The handles were restored from an older copy, which does not have the topic's hold.",
        "The updates that the topic lacks can no longer be read. Publish to a new topic, and give up this one.",
        (_STATUS, _NEW_TOPIC, _GIVE_UP),
    ),
    errors.PublishedTopicColumns: Entry(
        "The collection got a column, but messages in bare Avro do not say with which schema they were written. Or an "
        "earlier release has published to the topic since, so nobody knows which of its times have the column.",
        "Messages from before the column was added remain correct. Publish to a new topic, and give up this one.",
        (_STATUS, _NEW_TOPIC, _GIVE_UP),
    ),
    errors.RegistryUnreachable: Entry(
        "The registry is down, or its URL or the credentials are wrong.",
        "Nothing is lost: the next run continues from here. Check the registry, then the settings under `registry:`.",
        (_STATUS,),
    ),
    # The caller broke a rule.
    errors.MixedTimes: Entry(
        "A program compares times that have different numbers of components, or passes a value that is not a time.",
        "Correct the program: all times of one collection have the same width.",
    ),
    errors.ArgumentRefused: Entry(
        "An option or an argument has a value that is not allowed.",
        "Give a value that the rule in the error allows.",
        ("tidelake COMMAND --help",),
    ),
    errors.SchemaRefused: Entry(
        "The schema has a type that a Delta table cannot hold, a column with a reserved name, or two columns that "
        "differ only in case.",
        "Change the schema, or let the source write the column with another type.",
    ),
    errors.ConfigurationError: Entry(
        "`collections.yaml`, a file that it names, or an environment variable is wrong, or does not match the store.",
        "Correct the place that the error names: the file, the line and the field. Nothing was started or written.",
        ("tidelake status",),
    ),
    errors.UnknownPlugin: Entry(
        "The settings, or an entry of the store, use a framing or an envelope whose package is not installed here.",
        "Install the package in this environment, or correct the spelling.",
        ("make setup",),
    ),
    errors.NewerFormat: Entry(
        "A later version of Tidelake has written to this store, and this process still runs an earlier one.",
        "Update this process. The table is fine; do not change its properties.",
        ("pip show tidelake",),
    ),
    errors.UnknownCollection: Entry(
        "The collection was never ingested; or its name is spelled differently; or `store` points to another folder.",
        "Check `store` and the name; then run ingest once.",
        ("tidelake status",),
    ),
    errors.CollectionDropped: Entry(
        "Somebody dropped the collection, and the settings or a program still use it. A new collection of the same "
        "name is another one: its times and its holds are not those of the dropped one.",
        "Remove the collection from the settings. If you want a new collection of this name, run ingest, and let "
        "programs start again with a snapshot.",
        ("tidelake history NAME", "tidelake ingest NAME"),
    ),
    errors.CollectionRenamed: Entry(
        "The collection was renamed, and the settings or a program still use its earlier name. Without this "
        "error, a job would create a new collection with the earlier name and read the topic from its beginning.",
        "Use the new name in the settings. If you want a new collection with the earlier name as well, keep both names "
        "in the settings.",
        ("tidelake status",),
    ),
    errors.NameTaken: Entry(
        "The store has a collection of this name, or one is being created with it. The settings do not have to name "
        "it: `tidelake status` shows orphaned collections, too.",
        "Choose another name. If the other collection is no longer needed, drop it, or give it another name.",
        ("tidelake status", "tidelake rename NAME OTHER_NAME", "tidelake drop NAME"),
    ),
    errors.UnknownTopic: Entry(
        "The name is spelled differently, or another collection or lake reads the topic.",
        "Use one of the topics in the hint, or give another file with `--config`.",
        ("tidelake trace TOPIC PARTITION OFFSET",),
    ),
    errors.BagRefused: Entry(
        "The source has removed a row more often than it added it, or has added a row more often than a table can "
        "repeat it.",
        "The published table still shows the earlier contents. Leave `bag` out of the settings and publish again, or "
        "have the source correct the row.",
        ("tidelake read NAME", "tidelake current NAME"),
    ),
    errors.NoView: Entry(
        "Plain SQL over the stored rows would be wrong or would leave keys out, for example because there are keys in "
        "error or unavailable values.",
        "Read the published table, or read the contents with Tidelake.",
        ("tidelake path NAME", "tidelake read NAME"),
    ),
    errors.NotPublished: Entry(
        "`current` has not run since the collection was created, or nothing is sealed yet.",
        "Seal the collection, then publish its contents.",
        (_STATUS, "tidelake current NAME", "tidelake path NAME"),
    ),
    errors.UnknownColumn: Entry(
        "The name is spelled differently, or the column exists only in the source.",
        "Use one of the columns in the hint.",
        ("tidelake read NAME --limit 1",),
    ),
    errors.PredicateRefused: Entry(
        "The predicate has a syntax error, names an unknown column, or uses something that is not a function of a row.",
        "Correct the predicate: an SQL condition on the columns of the contents, in the dialect of the reading engine.",
        ("tidelake read NAME --where PREDICATE",),
    ),
    errors.QueryRefused: Entry(
        "The query is not valid SQL, reads a table that is not a collection, or calls a function whose value depends "
        "on more than the rows, for example on the clock.",
        "Correct the query: a SELECT over collections of the lake. Tidelake's guide about reading at a time says what "
        "a query may contain.",
        ("tidelake sql QUERY",),
    ),
    errors.EngineRefused: Entry(
        "The collection's envelope is from another package, so DuckDB does not know what its rows mean.",
        "Read the collection with Spark.",
        ("tidelake read NAME --engine spark",),
    ),
    errors.SinceError: Entry(
        "The retention rule `keep` has let compaction forget this time.",
        "Read at or after since. To keep more history from now on, raise `keep`; forgotten history does not come back.",
        (_STATUS,),
    ),
    errors.TimelinesDiffer: Entry(
        "The collections have times of different sources, or one is reclocked and the other is not.",
        "Read them separately. If the sources state the same times, give both collections the same `timeline`.",
        ("tidelake at NAME NAME",),
    ),
    errors.CollectionLags: Entry(
        "One of the collections was not ingested or sealed as far as the others, or its source is behind.",
        "Wait, or read at an earlier time, unless another collection has forgotten it. If the collection does not "
        "advance, look at what it is waiting for.",
        (_STATUS, "tidelake explain NAME"),
    ),
    errors.SnapshotTorn: Entry(
        "The connector was killed between two tables of a snapshot, and later took another snapshot.",
        "Read at or after the time of the next snapshot, which the error names.",
        ("tidelake times NAME", "tidelake at NAME OTHER"),
    ),
    errors.CollectionForgot: Entry(
        "The retention rule `keep` of one collection keeps less history than the rules of the others.",
        "Read at a later time. To keep more history from now on, raise `keep`, or hold the time.",
        (_STATUS, "tidelake hold NAME"),
    ),
    errors.LakeReadOnly: Entry(
        "A program calls something that writes, such as `acquire` or `fence`, on a lake opened with `read_only=True`.",
        "If the change is wanted, open the lake without `read_only`. If this store is a copy, open the original "
        "instead, because changes to a copy are lost.",
        (_STATUS,),
    ),
    errors.UpperError: Entry(
        "Nothing proves yet that all statements up to this time have arrived, or the seal job has not run.",
        "Wait, run seal, or read an earlier time. If upper does not move, look at what it is waiting for.",
        (_STATUS,),
    ),
    errors.KeysInError: Entry(
        "The newest record of a key cannot be used: it could not be decoded, names another key, or is "
        "an unusable change event.",
        "Have the source send the key's value again, or delete the key: either clears the error. Until then, read the "
        "other keys; the setting `current: {skip_errors: true}` publishes them.",
        (_STATUS, "tidelake read NAME --skip-errors"),
    ),
    errors.RowsClosed: Entry(
        "A program read a batch of a subscription after it had requested the next batch, or closed the subscription.",
        "Correct the program: read the rows of each batch, for example with `batch.updates.table()`, before you "
        "request the next batch.",
    ),
    errors.SealedTime: Entry(
        "A program appends an update at a time that it has already sealed.",
        "Correct the program: append at or after upper.",
    ),
    errors.FrontierRegression: Entry(
        "A program moves a frontier back.",
        "Correct the program: frontiers only advance.",
    ),
    errors.EncodingRefused: Entry(
        "A program encodes a value that its schema does not allow.",
        "Correct the value or the schema. Nothing was written.",
    ),
    errors.DataRefused: Entry(
        "The data in a decision is not a row of the collection.",
        "Copy the row from the output of a read.",
        ("tidelake read NAME --json",),
    ),
    errors.NotReclocked: Entry(
        "Only reclocked collections mint times and bind them to offsets.",
        "Use the status of the collection instead.",
        (_STATUS,),
    ),
    errors.PublishedTopicUnknown: Entry(
        "The name of the topic is spelled differently, the topic is in Kafka and `--kafka` is missing, or the "
        "publication was given up in the meantime.",
        "Correct the name, or add `--kafka`. To publish to the topic, leave `--stop` out.",
        ("tidelake holds NAME", "tidelake publish NAME --to TOPIC [--kafka]"),
    ),
    errors.NoCheckout: Entry(
        "Tidelake was installed without its jobs.",
        "Run the command from the checkout, or install Tidelake from it.",
        ("make setup",),
    ),
    errors.OptionRefused: Entry(
        "Options are missing, cannot be read, or cannot be combined.",
        "Correct the command as the hint says. Nothing was changed.",
        ("tidelake COMMAND --help",),
    ),
    errors.DecisionRefused: Entry(
        "The decision does not fit what the collection is waiting for: nothing waits there, or another decision is "
        "needed. The error says which of these it is.",
        "Find out what is waiting for a decision, and decide about that. Nothing was stored.",
        (_STATUS, "tidelake resolve --help"),
    ),
    errors.StatementRefused: Entry(
        "The statement of a decision is not JSON with `data` and `diff`.",
        "Write it as in the hint. Nothing was stored.",
        (_DISCARD,),
    ),
    errors.GeneratorRefused: Entry(
        "The options of `tidelake generate` cannot be combined, or the folder is not empty.",
        "Change the options as the hint says, or give an empty folder.",
        ("tidelake generate --help",),
    ),
    errors.CopyRefused: Entry(
        "The target of a recording already has messages, or does not match what was recorded.",
        "Give an empty folder, or an empty topic with as many partitions.",
        ("tidelake topic --help",),
    ),
    errors.CommitRefused: Entry(
        "A program prepared a commit that would break a rule of the store. This is a bug in Tidelake, or in code that "
        "uses its store directly.",
        "Nothing was written, and the store is fine. Report the error, with the log.",
    ),
    # A capability has ended.
    errors.CapabilityError: Entry(
        "The capability was dropped, its lease expired, or another holder has taken it.",
        "Acquire a new capability; its since may be later than that of the lost one.",
        (_STATUS,),
    ),
    errors.CapabilityExpired: Entry(
        "The holder was stopped, or made no call for longer than its lease, so a compaction ended the lease.",
        "Acquire a new capability; its since may be later than that of the lost one. Take a longer lease, or make "
        "calls more often.",
        ("tidelake holds NAME", "tidelake hold NAME --lease 4h"),
    ),
    errors.CapabilityDropped: Entry(
        "The program drops a capability twice, or uses it after it was dropped, perhaps by `tidelake release`.",
        "If the capability is still needed, acquire a new one. Otherwise, nothing needs to be done.",
        ("tidelake holds NAME",),
    ),
    errors.CapabilityTaken: Entry(
        "A token was given to two processes, or used again after `collection.capability` had replaced it.",
        "Use the token that the capability has now, or acquire a capability for each reader. If the new token was lost "
        "before a call was made with it, `collection.capability` and `tidelake release` still accept the old one.",
        ("tidelake holds NAME", "tidelake hold NAME"),
    ),
    errors.CapabilityForeign: Entry(
        "The name of the collection or the token is wrong, or the collection was recreated under the same name.",
        "Use the token with its own collection. If that collection no longer exists, acquire a new capability.",
        ("tidelake holds NAME",),
    ),
    errors.CapabilityUnknown: Entry(
        "The token is cut off, or its capability ended so long ago that no record of it is left.",
        "Check the token. If it is whole, acquire a new capability.",
        ("tidelake holds NAME",),
    ),
    errors.SubscriptionLapsed: Entry(
        "The consumer was stopped, or worked on one batch for longer than its lease, and compaction went on.",
        "Subscribe again with a snapshot, which replaces what was delivered so far. Take a longer lease, call `renew` "
        "while you work on a batch, or raise `keep`.",
        ("tidelake status NAME", "tidelake subscribe NAME --lease 1d"),
    ),
    # A commit failed, or its outcome is unknown.
    errors.Conflict: Entry(
        "Another process committed to the same table in the meantime. Steps retry on their own, so the table "
        "must be very busy if this error persists.",
        "Run the step again. If it recurs, find out which other processes write to the collection.",
        (_STATUS,),
    ),
    errors.VersionCleanedUp: Entry(
        "The validation took so long, or so many commits were made during it, that the log entries of the version "
        "it reads were cleaned up.",
        "Validate again; nothing is wrong with the collection.",
        (_STATUS,),
    ),
    errors.RunSwept: Entry(
        "The process was stopped or suspended for so long that a sweep may delete the files it wrote.",
        "Run the step again: it writes its rows once more.",
        (_STATUS,),
    ),
    errors.Fenced: Entry(
        "Somebody ran `tidelake fence` or `tidelake drop` while this process worked on the collection.",
        "Nothing needs repair: commits made before that are kept. If the collection was given to another writer, stop "
        "this process. If it was dropped, remove it from the settings. If this writer may still write to it, for "
        "example after `tidelake fence --anyone`, run the step again: it continues from the stored offsets.",
        ("tidelake history NAME", _STATUS, "tidelake fence NAME --writer WRITER"),
    ),
    errors.WriterFenced: Entry(
        "The collection was given to another writer with `tidelake fence`.",
        "Stop this writer; or give the collection back to it, which keeps the other writer out.",
        (_STATUS, "tidelake fence NAME --writer WRITER"),
    ),
    errors.Indeterminate: Entry(
        "The disk or the network failed during a commit, and the table could not be read afterwards; or the process "
        "was suspended for so long that the log no longer shows whether its commit was a part of it.",
        "Repair the disk or the network if it failed. Then run the step again: it resumes from the committed state.",
        (_STATUS, _VERIFY),
    ),
    # A person has to look into it.
    errors.DamagedTable: Entry(
        "Something else wrote to the store, a file was lost, or the disk returns wrong bytes.",
        "Act immediately, and run nothing that writes. Find out what is damaged, and repair what can be repaired. "
        "Restore everything else from a copy, or rebuild the collection from its topic under a new name.",
        (_VERIFY, _REPAIR, _RESTORE),
    ),
    errors.DamagedPublication: Entry(
        "Something else wrote to the published table, or a file of its log was lost.",
        "The collection itself is not affected. Move the table's folder elsewhere, and publish the contents again.",
        ("tidelake path NAME", "tidelake current NAME"),
    ),
    errors.DamagedFiles: Entry(
        "Data files were deleted, or the disk returns wrong bytes.",
        "Nothing is written to the collection until they are restored. Repair restores files from the topic if it "
        "still has the messages. Restore everything else from a copy of the store.",
        (_VERIFY, _REPAIR, _RESTORE),
    ),
    errors.NotRewritable: Entry(
        "The topic no longer has exactly what the tick read, the settings no longer name the topic, the collection got "
        "a column after the tick, or the file was written by a merge.",
        "If the settings no longer name the topic, name it again, and repeat the repair. Otherwise, restore the file "
        "from a copy of the store, or rebuild the collection from its topic under a new name.",
        (_VERIFY,),
    ),
    errors.DamagedLog: Entry(
        "A file of a table's log was changed, lost or swapped after it was acknowledged.",
        "Run nothing that writes. Repair restores entries from the copies that were made when they were "
        "acknowledged. If a log has lost all of these copies, repair recreates them only with --accept-newest-entry, "
        "which gives up any later commit.",
        (_VERIFY, _REPAIR, _RESTORE),
    ),
    errors.StoreUnreadable: Entry(
        "A volume is not mounted, permissions have changed, or the disk is failing.",
        "Repair the disk, or correct the mount or the permissions. Nothing was written.",
        (_STATUS, _VERIFY),
    ),
    errors.StoreUnwritable: Entry(
        "This user may not write to the store's folder, its file system is mounted read-only, or its disk is full.",
        "Correct the permissions or the mount, or free up space, and try again. A command that only "
        "reads does not need this permission, but without it, `tidelake subscribe` needs `--no-hold`.",
        (_STATUS, _DOCTOR),
    ),
    errors.StoreUnreachable: Entry(
        "The network or the object store is down or overloaded, or the endpoint is wrong.",
        "Nothing is lost: each commit either exists or does not, and the next run finds out. Check the network, then "
        "`endpoint`, `allow_http` and `ca_file` in the `s3:` block.",
        (_STATUS, _DOCTOR),
    ),
    errors.StoreBusy: Entry(
        "Many processes write the same object, or something else writes to the store or deletes from it.",
        "Nothing is lost. Run the step again. If the error recurs, find out which processes write to the store.",
        (_STATUS, _DOCTOR),
    ),
    errors.WrittenRowsMissing: Entry(
        "A service or a gateway lists objects late or answers from a cache, or something deletes new objects.",
        "Nothing is lost: the next run writes the rows again. If the error recurs, bypass the gateway, and make sure "
        "that no rule of the bucket deletes objects below the store.",
        (_STATUS, _DOCTOR),
    ),
    errors.BucketMissing: Entry(
        "The bucket was never created, was deleted, or its name or the endpoint is spelled differently.",
        "Create the bucket, or correct `store` or `endpoint` in the settings.",
        (_STATUS, _DOCTOR),
    ),
    errors.StoreAccessDenied: Entry(
        "A policy does not grant the named permission, the credentials have expired or are missing, or the clock of "
        "this machine is wrong.",
        "Grant the permission, renew the credentials, or correct the clock; then run the job again. Jobs need to read, "
        "write, list and delete below the URI of the store; a command that only reads, such as "
        "`tidelake status`, needs to read and list.",
        (_DOCTOR, "date --utc"),
    ),
    errors.WrongRegion: Entry(
        "`region` in the `s3:` block, or AWS_REGION, is not the region in which the bucket was created.",
        "Correct the region.",
        (_DOCTOR,),
    ),
    errors.ConditionalWritesMissing: Entry(
        "The service is too old, or a gateway in front of it drops the header `If-None-Match`.",
        "Update the service, bypass the gateway, or use another bucket. Nothing was committed.",
        (_DOCTOR,),
    ),
    errors.SparkLacksStore: Entry(
        "The session was started for lakes on a disk, or by spark-submit without the jars for S3.",
        "End this process. In a new one, start a session with these jars before any lake is opened: such a session "
        "works with lakes on disks and in S3. Nothing was written.",
    ),
    errors.ClockAhead: Entry(
        "The clock of the machine that runs ingest is wrong, or a topic with old timestamps is read rarely.",
        "Correct the clock. If it is right, raise `clock_ahead_max_s` for one ingest. Nothing was written.",
        ("date --utc", _STATUS),
    ),
    errors.StepFailed: Entry(
        "Spark, its JVM or the disk failed, often because memory or disk space ran out.",
        "All earlier commits are kept. Read the log, then run the step again; it continues from the last commit.",
        ("df -h", "tail -n 100 .logs/spark.log", _STATUS),
    ),
    errors.ReadFailed: Entry(
        "The engine that reads ran out of memory or disk space, or cannot handle what was asked of it.",
        "The collection is not affected. Read fewer rows or columns, free up space, or use the other engine. If Spark "
        "read, its log has the full error.",
        ("df -h", "tidelake read NAME --where PREDICATE --columns COLUMNS", "tidelake read NAME --engine spark"),
    ),
    errors.TookTooLong: Entry(
        "A large backlog, a slow disk or network, or something that hangs: a broker, a file system, a library.",
        "Committed work is kept. See in the log what happened last, and run the collection alone to see whether it "
        "progresses. If it only needs more time, raise `collection_limit_s`; without this setting, `--linger` allows "
        "five minutes for each collection. As long as the thread that works on the collection is alive, this process "
        "begins no other work on it: if it hangs, restart the process.",
        ("tail -n 100 .logs/spark.log", "tidelake run NAME", _STATUS),
    ),
    errors.BlockingCheckFailed: Entry(
        "The contents do not meet an expectation with `blocking: true`.",
        "Look at the check in the report. Correct the data at its source, or the expectation, and validate again.",
        ("tidelake validate NAME --full", _STATUS),
    ),
}
"""Every error that can be raised, with its entry."""
