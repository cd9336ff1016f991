from __future__ import annotations

from collections.abc import Callable

import pytest

from wdsloader.account import FILTERED, LOST_SHARD, Fault, Tally, causes_in_words, merge_accounts
from wdsloader.errors import ConfigError, SampleError, SkipLimitError


def fault(
    position: int, *, shard: str = "a.tar", kind: str = "undecodable picture", rule: str | None = "WDS040"
) -> Fault:
    error = SampleError(shard, "cut", key=f"k{position}", offset=512 * position, rule=rule, kind=kind)
    return Fault.of(error, position=position)


def tally(*, limit: int | float = 100, epoch_samples: int | None = 100) -> Tally:
    return Tally(epoch=3, start=0, limit=limit, epoch_samples=epoch_samples)


def test_what_was_expected_is_what_was_delivered_replaced_and_filtered() -> None:
    books = tally()
    books.add([fault(2), fault(5, shard="b.tar", kind=LOST_SHARD, rule=None)], delivered=6)
    books.add([fault(9, kind=FILTERED, rule=None)], delivered=7)
    account = books.account()
    assert (account.expected, account.delivered, account.replaced, account.filtered) == (16, 13, 2, 1)
    assert account.by_cause == {LOST_SHARD: 1, "undecodable picture (WDS040)": 1}
    assert account.by_shard == {"a.tar": 1, "b.tar": 1}
    assert account.lost_shards == ("b.tar",)
    assert [(f.position, f.shard, f.key, f.offset, f.cause, f.rule) for f in account.faults] == [
        (2, "a.tar", "k2", 1024, "cut", "WDS040"),
        (5, "b.tar", "k5", 2560, "cut", None),
    ]
    assert str(account) == (
        "epoch 4: 16 samples expected, 13 delivered, 2 skipped (1 of a missing or damaged shard, 1 undecodable picture "
        "(WDS040); in 2 shards), 1 shard missing or damaged (first b.tar), 1 filtered out"
    )


def test_what_has_no_epochs_is_named_instead() -> None:
    books = tally()
    books.add([], delivered=1)
    assert books.account().in_words("validation") == "validation: 1 sample expected, 1 delivered"


def test_causes_are_counted_as_people_count() -> None:
    causes = {"undecodable picture (WDS040)": 2, "no label (WDS022)": 1, "unreadable": 2, LOST_SHARD: 3}
    assert causes_in_words(causes) == (
        "2 undecodable pictures (WDS040), 1 sample without a label (WDS022), 2 unreadable samples, "
        "3 of missing or damaged shards"
    )


def test_a_count_as_limit_is_crossed_by_one_more_and_the_error_names_limit_count_and_first_causes() -> None:
    books = tally(limit=2)
    books.add([fault(1), fault(2)], delivered=0)
    with pytest.raises(SkipLimitError) as caught:
        books.add([fault(3), fault(4)], delivered=0)
    message = str(caught.value)
    assert message.startswith(
        "4 samples of epoch 4 could not be delivered, max_skipped=2. First: a.tar: 'k1' at byte 512"
    )
    assert message.count("a.tar") == 3


def test_a_share_as_limit_is_of_the_epoch() -> None:
    books = tally(limit=0.02, epoch_samples=100)
    books.add([fault(1), fault(2)], delivered=0)
    with pytest.raises(SkipLimitError, match=r"max_skipped=0.02 of 100 samples is 2"):
        books.add([fault(3)], delivered=0)


def test_a_share_of_an_epoch_of_unknown_length_does_not_judge_by_the_first_few() -> None:
    books = tally(limit=0.01, epoch_samples=None)
    books.add([fault(n) for n in range(10)], delivered=0)
    with pytest.raises(SkipLimitError):
        books.add([fault(10)], delivered=0)


def test_filtered_samples_do_not_count_for_the_limit() -> None:
    tally(limit=0).add([fault(n, kind=FILTERED) for n in range(50)], delivered=0)


def test_a_lost_shard_whose_samples_nobody_counted_counts_as_one() -> None:
    with pytest.raises(SkipLimitError, match="0 samples and 1 shard of unknown length"):
        tally(limit=0).add([], delivered=4, lost=["c.tar"])


def test_particulars_are_kept_of_the_first_thousand_and_the_count_goes_on() -> None:
    books = tally(limit=5000)
    books.add([fault(n) for n in range(3000)], delivered=0)
    assert (books.account().replaced, len(books.account().faults)) == (3000, 1000)


class TestMerge:
    def accounts(self) -> list[Tally]:
        ranks = [tally(), tally()]
        ranks[0].add([fault(4)], delivered=9)
        ranks[1].add([fault(1), fault(3, shard="b.tar")], delivered=8)
        ranks[0].dropped, ranks[1].dropped = 2, 3
        return ranks

    def test_the_ranks_add_up_with_faults_by_position(self) -> None:
        whole = merge_accounts(rank.account() for rank in self.accounts())
        assert (whole.expected, whole.delivered, whole.replaced, whole.dropped) == (20, 17, 3, 5)
        assert whole.by_shard == {"a.tar": 2, "b.tar": 1}
        assert [f.position for f in whole.faults] == [1, 3, 4]

    @pytest.mark.parametrize(
        "spoil", [lambda ranks: [], lambda ranks: [*ranks, Tally(epoch=4, start=0, limit=1, epoch_samples=1)]]
    )
    def test_accounts_of_different_epochs_are_refused(self, spoil: Callable[[list[Tally]], list[Tally]]) -> None:
        with pytest.raises(ConfigError, match="one epoch"):
            merge_accounts(rank.account() for rank in spoil(self.accounts()))
