"""A damaged shard -> one of its whole samples, and a quarantine of all the rest."""
