"""The bytes of stores and topics: on a local disk, or in an object store. Everything above goes through `blobs`."""
