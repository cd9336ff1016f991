"""Rules on several shards together; ``together`` reports them. WDS035, WDS052, WDS055 to WDS059, WDS072."""

from __future__ import annotations

from shardkit.check.rules.rule import declare

__all__: list[str] = []

declare(
    "WDS035",
    "warning",
    title="One picture has two labels.",
    effect="The loss is told both: one of them is wrong, and teaches the model so.",
    remedy="Look at the picture and drop the wrong sample",
    explanation="Two samples of one set hold the same picture, byte by byte (by XXH3 hash of 128 bits), with "
    "different labels.",
)
declare(
    "WDS052",
    "warning",
    title="Keys are in several shards.",
    effect="Samples can no longer be told apart by key; readers that join parts by key mix them up.",
    remedy="Give every sample of a dataset its own key",
    explanation="Two shards of one set have samples of the same key. Here they stay two samples. A set is what a "
    "manifest lists, else the shards whose names differ in numbers alone.",
)
declare(
    "WDS055",
    "error",
    title="A picture is in the training set and in the validation set.",
    effect="Validation measures what was learnt by heart: the accuracy is too high.",
    remedy="Drop it from one of the two sets",
    explanation="The same picture, byte by byte (by XXH3 hash of 128 bits), is in both: in the shards given and in "
    "those of --against, or in shards whose manifests, or names where there are none, say different splits. Where the "
    "same files are in both sets, that is told once.",
)
declare(
    "WDS056",
    "note",
    title="A picture comes twice.",
    effect="It counts twice in the loss, or in the accuracy.",
    remedy="Drop one of the two",
    explanation="Two samples of one set hold the same picture, byte by byte, with the same label. ImageNet itself has "
    "some.",
)
declare(
    "WDS072",
    "warning",
    title="Two sets of one split hold the same pictures.",
    effect="Whoever trains on all that is there sees them twice an epoch, under keys that may be equal too.",
    remedy="Name one of the two sets alone, by its manifest, or move the other elsewhere",
    explanation="Pictures of one set, byte by byte (by XXH3 hash of 128 bits), are in another of the same split too, "
    "or of none where neither has one: two manifests in a folder list the same shards or copies of them, say. Told "
    "once for a pair of sets.",
)
declare(
    "WDS057",
    "note",
    title="There is a gap in the numbers of the shards.",
    effect="A folder or a glob passes over a missing shard in silence: its samples are never seen.",
    remedy="Fetch what is missing; a manifest says which shards there should be (wds index)",
    explanation="The names of shards that no manifest lists differ in one number, and some between the first and the "
    "last are not there. What follows the last is not known. Told where no more are missing than there are.",
)
declare(
    "WDS058",
    "note",
    title="The shards are uneven.",
    effect="Ranks that are dealt whole shards get different numbers of batches: some wait, repeat or drop.",
    remedy="Pack again into even shards; a loader that deals out samples is not affected",
    explanation="The largest shard has more than one and a half times the samples of the smallest. The last shard may "
    "be smaller: that is how packing by a number of samples ends.",
)
declare(
    "WDS059",
    "warning",
    title="There are fewer shards than readers.",
    effect="Readers without a shard are idle, and a job may hang that waits for them.",
    remedy="Pack into more shards, or use fewer readers (ranks times workers)",
    explanation="--readers says how many ranks times workers will read; a loader that deals out whole shards leaves "
    "the rest without any. One that deals out samples is not affected.",
)
