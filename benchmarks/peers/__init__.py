"""Other libraries that let a program look at attention, timed on the same weights, the same tokens and the same task.

The task is what `Spectrum` needs: for every layer, head and token the column sum of the attention map and its diagonal.
Each peer does it as a user who knows the library would write it: the map is reduced where it is made and then let
go, so that no more than one layer's maps are alive. A peer's file has one function,

    observer(model, tokenizer, *, logits) -> observe;  observe(ids) -> (column sums, diagonal), each (layer, batch, head, token)

and imports its library at the top, so it can be imported only where that library is. On a CPU each library lives in
an environment of its own (`environment`), runs there as a child (`child`), and is held against Headwise (`comparison`).
"""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """One library."""

    title: str
    package: str  # on PyPI
    version: str
    module: str  # of this folder
    how: str  # in a few words

    @property
    def label(self) -> str:
        """What its row is called."""
        return f"{self.title} {self.version}: {self.how}"

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


PEERS = {
    peer.package: peer
    for peer in (
        Peer(
            "TransformerLens", "transformer-lens", "4.3.0", "peers.transformer_lens",
            "hooks on `hook_pattern` that reduce at once",
        ),
        Peer("nnsight", "nnsight", "0.8.1", "peers.nnsight", "a trace of eager attention, reduced inside it"),
    )
}  # fmt: skip

# no peer in the tables of speed: it compiles the programs of `ground_truth`
TRACR = Peer("tracr", "tracr-pypi", "1.0.0", "peers.tracr_programs", "RASP programs compiled to weights")
POLYGRAPH = Peer("LM-Polygraph", "lm-polygraph", "0.7.0", "peers.polygraph_child", "its scores, see `parity`")
