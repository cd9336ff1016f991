"""Bytes of one shard -> whole members and samples: where the bytes come from, gzip, headers, the walk, the reader."""
