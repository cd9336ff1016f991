"""Where each sample lies: the index of one shard, of many at once, and what describes a whole set beside them."""
