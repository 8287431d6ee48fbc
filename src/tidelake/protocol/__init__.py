"""The protocol: times, frontiers, messages, reader, writer and ledger. Pure: no I/O."""
