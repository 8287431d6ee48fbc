"""The bytes of stores and topics: on a local disk, or in an object store. All other packages go through `blobs`."""
