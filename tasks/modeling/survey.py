"""The efficient transformers of the literature, and where each of them is: built here, in transformers, or in neither.

The rows are those of table 1 of Tay et al. 2020, Efficient Transformers: A Survey, arXiv:2009.06732, without its
mixtures of experts, and the models that are kept beside them here. Costs, with N tokens and k, b and m sizes of a
model, were written from memory of these papers, and are neither measured nor compared with them.
"""

from __future__ import annotations

from typing import NamedTuple

from tasks.modeling.names import reads_back


class Efficient(NamedTuple):
    """One model of the literature."""

    name: str
    paper: str
    """Its number at arXiv."""
    cost: str
    decodes: bool
    """Whether it can write texts token by token, as it was published."""
    mixers: tuple[str, ...] = ()
    """What it is called here."""
    model_type: str = ""
    """What it is called in transformers."""


SURVEY = (
    Efficient("Memory Compressed", "1801.10198", "N²/k²", True),
    Efficient("Image Transformer", "1802.05751", "N m", True),
    Efficient("Set Transformer", "1810.00825", "k N", False),
    Efficient("Transformer-XL", "1901.02860", "N²", True),
    Efficient("Sparse Transformer", "1904.10509", "N √N", True),
    Efficient("Reformer", "2001.04451", "N log N", True, model_type="reformer"),
    Efficient("Routing Transformer", "2003.05997", "N √N", True),
    Efficient("Axial Transformer", "1912.12180", "N √N", True),
    Efficient("Compressive Transformer", "1911.05507", "N²", True),
    Efficient("Sinkhorn Transformer", "2002.11296", "b²", True),
    Efficient("Longformer", "2004.05150", "N (k + m)", True, model_type="longformer"),
    Efficient("ETC", "2004.08483", "N m + m²", False),
    Efficient(
        "Synthesizer",
        "2005.00743",
        "N²",
        True,
        mixers=("synth-random", "synth-fixed", "synth-random-factorized", "synth-dense", "synth-dense-factorized"),
    ),
    Efficient("Performer", "2009.14794", "N", True, mixers=("favor",)),
    Efficient("Funnel Transformer", "2006.03236", "N²", False, model_type="funnel"),
    Efficient("Linformer", "2006.04768", "N", False, mixers=("linformer",)),
    Efficient("Linear Transformer", "2006.16236", "N", True, mixers=("linear",)),
    Efficient("Big Bird", "2007.14062", "N", False, model_type="big_bird"),
    Efficient("Random Feature Attention", "2103.02143", "N", True),
    Efficient("Long Short Transformer", "2107.02192", "k N", True),
    Efficient("Poolingformer", "2105.04371", "N", False),
    Efficient("Nyströmformer", "2102.03902", "k N", False, model_type="nystromformer"),
    Efficient("Perceiver", "2103.03206", "k N", False, model_type="perceiver"),
    Efficient("Clusterformer", "2007.04825", "N log N", False),
    Efficient("Luna", "2106.01540", "k N", True),
    Efficient("TokenLearner", "2106.11297", "k²", False),
    Efficient("Lightweight and dynamic convolution", "1901.10430", "k N", True, mixers=("light", "dynamic")),
    Efficient("Lite Transformer (LSRA)", "2004.11886", "N²", True, mixers=("lsra", "lsra-dynamic")),
    Efficient("Local attention in blocks", "1802.05751", "N m", True, mixers=("local",)),
    Efficient("FNet", "2105.03824", "N log N", False, model_type="fnet"),
    Efficient("YOSO", "2111.09714", "N", False, model_type="yoso"),
    Efficient("ConvBERT", "2008.02496", "N²", False, model_type="convbert"),
    Efficient("LED", "2004.05150", "N (k + m), and N² of its decoder", True, model_type="led"),
    Efficient("LongT5", "2112.07916", "N m, and N² of its decoder", True, model_type="longt5"),
    Efficient("RWKV", "2305.13048", "N", True, model_type="rwkv"),
    Efficient("Mamba", "2312.00752", "N", True, model_type="mamba"),
)


def where_built(model: Efficient) -> str:
    """Return where a model is."""
    if model.mixers:
        without = model.decodes and not any(reads_back(name) for name in model.mixers)
        return f"built here: {', '.join(f'`{name}`' for name in model.mixers)}{', not to write' if without else ''}"
    return f"in transformers: `{model.model_type}`" if model.model_type else "neither"
