"""Shards that are no local files, as streams of bytes that are read forward: the web, stores, commands."""
