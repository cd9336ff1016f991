from __future__ import annotations

from shardkit import FakeImageNet, FakeSource


def test_samples_are_the_generators() -> None:
    pictures = FakeImageNet(num_samples=6, num_classes=3, size=(40, 32), sizes="fixed")
    source = FakeSource(pictures)
    sample = source.sample(4)
    assert dict(sample.members) == {"jpg": pictures.sample(4)[0], "cls": str(pictures.sample(4)[1]).encode()}
    assert (sample.key, len(source)) == ("00000004", 6)
    assert source.classes == ("fake0000", "fake0001", "fake0002")
    assert (source.shuffled, source.split, source.seed, source.class_order) == (True, "train", 0, "by number")
    assert source.options["size"] == [40, 32]
