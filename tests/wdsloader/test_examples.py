"""How the loader is used: a plain loop of torch, Lightning, accelerate. Each test is a whole small program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.shards import write_samples
from wdsloader import AugmentConfig, Batch, Dataset, LoaderConfig, TorchLoader, open_dataset

CONFIG = LoaderConfig(batch_size=8, image_size=8, augment=AugmentConfig(), num_workers=0, num_epochs=2)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return open_dataset([str(write_samples(tmp_path / "s.tar", 40))])


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """The mean over the rows that count."""
    logits = model(batch.images.permute(0, 3, 1, 2).float() / 255)
    losses = functional.cross_entropy(logits, batch.labels, reduction="none")
    return (losses * batch.weights).sum() / batch.weights.sum().clamp(min=1)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))


def test_a_plain_loop_that_stops_and_goes_on_ends_at_the_same_weights(dataset: Dataset) -> None:
    def train(model: nn.Module, *, steps: int, state: dict[str, Any] | None) -> dict[str, Any]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with TorchLoader(dataset, CONFIG) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for _ in range(2):
                for batch in loader:
                    loss_of(model, batch).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    steps -= 1
                    if not steps:
                        return batch.state
            return loader.state_dict()

    whole, halted = make_model(), make_model()
    train(whole, steps=-1, state=None)
    train(halted, steps=-1, state=train(halted, steps=3, state=None))
    for ours, theirs in zip(whole.parameters(), halted.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lightning_takes_the_loader_as_it_is(dataset: Dataset, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    seen: list[tuple[str | None, ...]] = []

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]  # may not be installed
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model()

        def training_step(self, batch: Batch, _: int) -> torch.Tensor:
            seen.append(batch.keys)
            return loss_of(self.model, batch)

        def transfer_batch_to_device(self, batch: Batch, *_: object) -> Batch:
            return batch

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    with TorchLoader(dataset, CONFIG) as loader:
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path, use_distributed_sampler=False,
        )  # fmt: skip
        trainer.fit(Module(), loader)
    with TorchLoader(dataset, CONFIG) as loader:
        assert seen == [batch.keys for _ in range(2) for batch in loader]


@pytest.mark.filterwarnings("ignore")
def test_accelerate_prepares_the_model_and_leaves_the_loader_its_ranks(dataset: Dataset) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    plain, model = make_model(), make_model()
    for trained, backward in ((plain, torch.Tensor.backward), (model, accelerator.backward)):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        prepared = trained
        if trained is model:
            prepared, optimizer = accelerator.prepare(model, optimizer)
        layout = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
        with TorchLoader(dataset, CONFIG, **layout) as loader:
            for _ in range(2):
                for batch in loader:
                    backward(loss_of(prepared, batch))
                    optimizer.step()
                    optimizer.zero_grad()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)
