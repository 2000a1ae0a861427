"""The peers by name."""

from collections.abc import Mapping
from types import MappingProxyType

from octavo.evaluation.comparison.peers.llama_cpp import LlamaCppPeer
from octavo.evaluation.comparison.peers.openvino import OpenVinoPeer
from octavo.evaluation.comparison.peers.peer import Peer
from octavo.evaluation.comparison.peers.transformers import TransformersPeer
from octavo.evaluation.comparison.peers.vllm import VllmPeer

PEERS: Mapping[str, type[Peer]] = MappingProxyType(
    {peer.name: peer for peer in (OpenVinoPeer, LlamaCppPeer, VllmPeer, TransformersPeer)}
)
