"""Samples of a source -> shards: the layout, the written plan, and the work, alone or shared."""
