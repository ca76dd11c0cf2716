"""Building models: a student smaller than its teacher, started at random, from the teacher's layers, or from its
embeddings.

Sources: layers copied at even distances from Sanh et al. 2019, DistilBERT, arXiv:1910.01108; random starts from Jiao et
al. 2019, TinyBERT, arXiv:1909.10351. All models built here are plain Hugging Face models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tasks.architectures.architecture import Architecture
from tasks.architectures.known_architectures import ARCHITECTURES, architecture_of, shape_of
from tasks.architectures.requirements import require_decoder, require_heads
from tasks.errors import ModelError, RecipeError
from tasks.methods.layers.layer_dropping import drop_decoder_layers, drop_layers
from tasks.methods.layers.layer_maps import initial_layers
from tasks.methods.layers.layer_strategies import STRATEGIES, kept_layers
from tasks.task_types.stored import STATED
from tasks.training.data.rows import Task, fitted
from tasks.training.models.attention import own_attention
from tasks.training.precision import attention_for

DEPTHS = ("layers", "decoder_layers")
"""Knobs of a shape that are numbers of layers."""


def load_classifier(folder: Path, task: Task, place: torch.device, *, seed: int = 0) -> Any:
    """Load a folder as a model of the task in float32; a missing head is randomly initialised from ``seed``."""
    from transformers import AutoConfig

    torch.manual_seed(seed)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    task.head.configure(config, task.labels or ())
    model = task.head.auto_class().from_pretrained(
        folder,
        config=config,
        local_files_only=True,
        dtype=torch.float32,
        attn_implementation=attention_for(place),
        use_safetensors=True,
        ignore_mismatched_sizes=True,
    )
    return own_attention(tied(model).to(place))


def load_encoder(folder: Path, place: torch.device) -> Any:
    """Load a folder as a bare encoder in float32."""
    from transformers import AutoModel

    options = {"dtype": torch.float32, "attn_implementation": attention_for(place), "use_safetensors": True}
    return own_attention(tied(AutoModel.from_pretrained(folder, local_files_only=True, **options)).to(place))


def load_masked_lm(folder: Path, place: torch.device) -> Any:
    """Load a folder as a masked language model in float32; raise ModelError if it has no trained head, since its
    answers would be random."""
    from transformers import AutoModelForMaskedLM

    options = {"dtype": torch.float32, "attn_implementation": attention_for(place), "use_safetensors": True}
    model, found = AutoModelForMaskedLM.from_pretrained(
        folder, local_files_only=True, output_loading_info=True, **options
    )
    if found["missing_keys"]:
        raise ModelError(
            f"{folder.name} has no masked-LM head ({sorted(found['missing_keys'])[0]} is missing); name a model "
            f"that was saved with one"
        )
    return own_attention(tied(model).to(place))


def tied(model: Any) -> Any:
    """Return a model that shares, in place, the weights of which its file has copies, or has others as its architecture
    needs them."""
    return architecture_of(model.config).tie(model)


def smaller(config: Any, shape: SimpleNamespace) -> Any:
    """Return the teacher's config with the student's shape; raise ModelError for a shape that cannot be built."""
    small, architecture, depth = copy.deepcopy(config), architecture_of(config), config.num_hidden_layers
    if shape.layers > depth:
        raise ModelError(f"the student has {shape.layers} layers and its teacher {depth}; give it at most as many")
    for knob, name in architecture.shape.items():
        value = getattr(shape, knob, None)
        if value is not None and not hasattr(config, name):
            raise ModelError(f"a model of type {config.model_type} has no {name}; remove {knob}")
        if value is not None:
            setattr(small, name, value)
    architecture.follow(small, initial_layers(shape.layers, depth))
    require_decoder(config, getattr(shape, "decoder_layers", None), "the student")
    require_heads(small, small.hidden_size, small.num_attention_heads)
    return small


def same_widths(config: Any, small: Any) -> bool:
    """Tell whether teacher and student have the same widths, so that layers can be copied."""
    depths = dict.fromkeys(DEPTHS, 0)
    return {**shape_of(config), **depths} == {**shape_of(small), **depths}


def from_teacher(model: Any, shape: SimpleNamespace, build: Callable[[Any], Any]) -> Any:
    """Build a student of evenly spaced layers of the teacher, head included."""
    return with_layers(model, shape, initial_layers(shape.layers, model.config.num_hidden_layers))


def with_layers(model: Any, shape: SimpleNamespace, kept: Sequence[int]) -> Any:
    """Build a student of some layers of the teacher, counted from 0, head included."""
    small = smaller(model.config, shape)
    if not same_widths(model.config, small):
        raise ModelError(
            f"start: teacher copies whole layers, so the widths must agree; the student has {describe(small)}, its "
            f"teacher has "
            f"{describe(model.config)}; use start: embeddings or random"
        )
    student = copy.deepcopy(model)
    drop_layers(student, kept)
    return with_decoder(student, shape)


def with_decoder(student: Any, shape: SimpleNamespace) -> Any:
    """Leave evenly spaced layers of the decoder, in place, where the shape says how many; return the model."""
    depth, wanted = shape_of(student.config).get("decoder_layers"), getattr(shape, "decoder_layers", None)
    if depth is not None and wanted is not None:
        require_decoder(student.config, wanted, "the student")
        drop_decoder_layers(student, initial_layers(wanted, depth))
    return student


def from_nothing(model: Any, shape: SimpleNamespace, build: Callable[[Any], Any]) -> Any:
    """Build a student with random weights."""
    return build(smaller(model.config, shape))


def from_embeddings(model: Any, shape: SimpleNamespace, build: Callable[[Any], Any]) -> Any:
    """Build a student with random layers and the teacher's embeddings, projected on their principal axes if the
    student's are narrower."""
    student = from_nothing(model, shape, build)
    # ELECTRA and ALBERT: may be narrower than the layers, and is as wide as the teacher's
    table_VE = student.get_input_embeddings().weight
    axes_DE = principal_axes(model.get_input_embeddings().weight.detach(), table_VE.shape[1])
    teacher = tables(model)
    for name, value in tables(student).items():
        source = teacher[name].detach()
        # MobileBERT: positions and segments are as wide as the layers
        other = (source.shape[1], value.shape[1]) != tuple(axes_DE.shape)
        value.data.copy_(source @ (principal_axes(source, value.shape[1]) if other else axes_DE))
    return student


def tables(model: Any) -> dict[str, Tensor]:
    """Return a model's embedding tables by name: words, positions and segments, as far as they exist."""
    root = model.base_model.get_submodule(architecture_of(model.config).embeddings)
    return {name: module.weight for name, module in root.named_modules() if isinstance(module, nn.Embedding)}


STARTS: dict[str, Callable[[Any, SimpleNamespace, Callable[[Any], Any]], Any]] = {
    "teacher": from_teacher,
    "embeddings": from_embeddings,
    "random": from_nothing,
}
"""Starts in the teacher's own architecture; a start in another architecture has the name of that architecture."""


def in_architecture(target: Architecture, start: str, model: Any, shape: SimpleNamespace) -> Any:
    """Build a student of the architecture ``target`` from evenly spaced layers of a teacher of another architecture.

    Raises ModelError for a teacher that ``target`` cannot be built from, and for other widths than the teacher's if
    whole layers are copied.
    """
    config = model.config
    build = target.from_teachers.get(config.model_type)
    if build is None:
        raise ModelError(
            f"start: {start} copies the layers of a model among {', '.join(target.from_teachers)}, and the "
            f"teacher is a model of type {config.model_type}; use start: teacher"
        )
    own = {knob: value for knob, value in shape_of(config).items() if knob != "layers"}
    other = [knob for knob, value in own.items() if getattr(shape, knob, None) not in (None, value)]
    if other and not target.own_widths:
        raise ModelError(
            f"start: {start} copies whole layers, so the student has its teacher's widths; remove {', '.join(other)}"
        )
    student = with_decoder(build(model, shape, initial_layers(shape.layers, config.num_hidden_layers)), shape)
    if hasattr(config, STATED):
        setattr(student.config, STATED, getattr(config, STATED))
    of_head = getattr(type(model), "with_head_of", None)
    return own_attention(student if of_head is None else of_head(student))


def build_student(
    start: str, model: Any, shape: SimpleNamespace, *, seed: int, contributions: Sequence[float] | None = None
) -> Any:
    """Build a student of ``model`` (a classifier or a bare encoder) in the given shape; the teacher is not changed.

    ``start`` may also be a strategy of layer dropping, which selects the teacher's layers, or the name of another
    architecture that can be built from the teacher's.
    """
    torch.manual_seed(seed)
    if start in STRATEGIES:
        depth = model.config.num_hidden_layers
        return with_layers(model, shape, kept_layers(start, depth, depth - shape.layers, contributions)).to(
            model.device
        )
    if start in ARCHITECTURES and ARCHITECTURES[start].from_teachers:
        return in_architecture(ARCHITECTURES[start], start, model, shape).to(model.device)
    if start not in STARTS:
        raise RecipeError(
            f"unknown start {start!r}; choose one of {', '.join(sorted([*STARTS, *STRATEGIES]))}, an architecture "
            f"({', '.join(sorted(name for name, one in ARCHITECTURES.items() if one.from_teachers))}), or name a "
            f"folder or hub id"
        )
    student = STARTS[start](model, shape, lambda config: type(model)._from_config(config, dtype=torch.float32))
    if start != "teacher":
        # A config that states a shared block builds one for each layer; trained apart, all but the first would be lost.
        tied(student)
    return student.to(model.device)


def principal_axes(values_VD: Tensor, width: int) -> Tensor:
    """Return the ``width`` leading principal axes [D, E]; the sign of each column is fixed, so that every machine
    builds the same student."""
    if width > values_VD.shape[1]:
        raise ModelError(
            f"the student's width {width} is larger than its teacher's {values_VD.shape[1]}; make it narrower or "
            f"use start: random"
        )
    if width == values_VD.shape[1]:
        return torch.eye(width, device=values_VD.device)
    _, axes_DD = torch.linalg.eigh((values_VD.double().T @ values_VD.double()).cpu())
    axes_DE = axes_DD.flip(1)[:, :width]
    signs_E = axes_DE.gather(0, axes_DE.abs().argmax(0, keepdim=True)).sign()
    return (axes_DE * signs_E).to(values_VD)


def set_dropout(model: nn.Module, share: float | None) -> None:
    """Set every dropout of a model for this training; None keeps the model's own. The saved config does not change."""
    if share is None:
        return
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
        # translators of Marian's kind hold their shares as plain numbers
        for name in ("attention_dropout", "attention_dropout_prob", "dropout_prob", "dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), (int, float)):
                setattr(module, name, share)


def freeze(model: Any) -> Any:
    """Turn a model into a frozen teacher: no dropout, no gradients."""
    return model.eval().requires_grad_(False)


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a plain Hugging Face folder: config, safetensors, tokenizer; local paths are removed."""
    tied(model).config._name_or_path = ""
    # Transformers refuses modules that stand in several places; each place gets a copy, and loading ties them again.
    model.save_pretrained(folder, state_dict=copied(model) if shares_modules(model) else None)
    tokenizer.name_or_path = ""
    # it was loaded for a teacher, which may be of another family
    fitted(tokenizer, model.config).save_pretrained(folder)


def shares_modules(model: nn.Module) -> bool:
    """Tell whether one module stands in several places of a model."""
    names = model.named_modules(remove_duplicate=False)
    return sum(1 for _ in names) > sum(1 for _ in model.modules())


def copied(model: Any) -> dict[str, Tensor]:
    """Return the weights of a model with a copy for each place of a shared module; tensors that transformers itself
    ties are left to it."""
    first, found = dict[int, str](), dict[str, Tensor]()
    for name, value in model.state_dict().items():
        twice = first.setdefault(value.data_ptr(), name) != name
        found[name] = value.clone() if twice and name not in model.all_tied_weights_keys else value
    return found


def describe(config: Any) -> str:
    """Return a short description of a model's shape."""
    shape = shape_of(config)
    return f"{shape['layers']} x {shape['hidden']}, {shape['heads']} heads, feed-forward {shape['feed_forward']}"
