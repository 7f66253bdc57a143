"""Who stays on the device: the cache core, the ledger, and one policy a file."""
