"""MPNet (Song et al. 2020, arXiv:2004.09297): BERT's layers with a bias of relative position."""

from __future__ import annotations

from tasks.architectures.architecture import HIDDEN, OWN_ATTENTION, TWO_MAPS, Architecture

MPNET = Architecture(
    feed_forward=TWO_MAPS,
    reserved_positions=True,
    signals=(HIDDEN,),
    because=OWN_ATTENTION,
    plain=True,
)
