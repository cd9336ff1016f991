"""All loaders of the comparison, by name."""

from __future__ import annotations

from bench.peers import dali, energon, ffcv, floor, lit, mosaic, ours, torch_loaders
from bench.peers.task import Peer

__all__ = ["PEERS"]

_MODULES = (ours, floor, torch_loaders, lit, mosaic, energon, dali, ffcv)
PEERS: dict[str, Peer] = {peer.name: peer for module in _MODULES for peer in module.PEERS}
