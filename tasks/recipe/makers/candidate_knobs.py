"""What every candidate of a recipe has, whichever maker makes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from tasks.recipe.knobs import Compared, Name, require_distinct, runtime_knob
from tasks.recipe.training import Pretraining, TaskTraining, sharing_of

PRETRAINED, TEACHER = "pretrained", "teacher"


class CandidateKnobs(Compared):
    """What every candidate has: its name, the model that it is made from, and its seeds."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    name: Name = runtime_knob(..., "Short name, for example cut-6.")
    made_from: str = Field(
        alias="from",
        description="pretrained, teacher, or another candidate by its name; its checkpoint of the same seed is taken.",
    )
    by: str = Field(description="The maker.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None,
        min_length=1,
        description="One training per seed; empty: those of the candidate that it is made from, otherwise 0.",
    )

    @model_validator(mode="after")
    def seeds_differ(self) -> Self:
        """Reject repeated seeds: they would count one training twice."""
        require_distinct(self.seeds, "seeds")
        return self

    @property
    def is_follower(self) -> bool:
        """Whether it is made from another candidate."""
        return self.made_from not in (PRETRAINED, TEACHER)

    @property
    def planned_seeds(self) -> tuple[int, ...]:
        """Its seeds; those of a planned candidate are always stated."""
        return self.seeds or (0,)

    @property
    def planned_role(self) -> str:
        """Its role, a name of ``ROLES``."""
        return "student"

    @property
    def signal_of_training(self) -> str:
        """What it learns from: the teacher or labels; empty if it is not trained."""
        return ""

    @property
    def start_of_layers(self) -> str:
        """Where its layers come from, as a student's ``start``; ``teacher`` if it keeps those of its origin."""
        return TEACHER

    @property
    def planned_shape(self) -> dict[str, int | None]:
        """The shape of a model that is built anew; empty if it has the shape of its origin, but for the layers."""
        return {}

    def sharing(self, section: Pretraining | None) -> str:
        """What its layers share, as ``share`` says it, where it is built as an ALBERT, or from a model that
        ``section`` pretrains as one; empty if nothing is known to be shared."""
        return "" if section is None or self.is_follower else sharing_of(section)

    @property
    def mixers(self) -> tuple[str, ...]:
        """What stands in each of its layers, if it is built anew with attentions of our own."""
        return ()

    @property
    def changes_each_layer(self) -> bool:
        """Whether its maker changes layers one by one, and a block that layers share once for each of them."""
        return False

    @property
    def trainings(self) -> dict[str, TaskTraining]:
        """Its own trainings on the task, by their section in it."""
        return {}

    @property
    def has_own_tokenizer(self) -> bool:
        """Whether its tokenizer is another than that of the model that it is made from."""
        return False

    @property
    def has_zeros(self) -> bool:
        """Whether single weights of it are 0, which a further training would change."""
        return False

    @property
    def has_pattern(self) -> bool:
        """Whether its zeros stand in groups of each row, which fewer columns would divide anew."""
        return False

    @property
    def takes_columns(self) -> bool:
        """Whether its maker takes some columns out of matrices."""
        return False

    @property
    def has_silent_heads(self) -> bool:
        """Whether weights of whole attention heads are 0, which stay so as long as no values of heads are compared."""
        return False

    @property
    def grid(self) -> str:
        """The format of exports for whose grid its weights are trained, which a further change would leave; empty if
        there is none."""
        return ""

    @property
    def has_static_ranges(self) -> bool:
        """Whether its folder states the ranges of states with which its graph is served."""
        return False

    @property
    def as_control(self) -> tuple[str, str]:
        """The knob, and its value, by which it would be a control that others of its maker have to beat; two empty
        strings where its maker has none."""
        return "", ""

    def is_control_of(self, other: CandidateKnobs) -> bool:
        """Return whether it is another candidate's control: of the same maker, and different in nothing else."""
        knob, control = self.as_control
        return (
            bool(knob)
            and type(self) is type(other)
            and getattr(self, knob) == control != getattr(other, knob)
            and self.knobs_but(knob) == other.knobs_but(knob)
        )

    def knobs_but(self, *apart: str) -> dict[str, object]:
        """Return all that decides what is made, without some knobs."""
        return self.model_dump(exclude={"name", "seeds", "role", "compared_to", *apart}, by_alias=False)

    def width_and_heads(self, width: int, heads: int) -> tuple[int, int]:
        """Return its width and its heads in each layer, made from a model of such a width and so many heads."""
        return width, heads

    def depth(self, layers: int) -> int:
        """Return its number of layers, made from a model of so many."""
        return layers


class CutKnobs(CandidateKnobs):
    """What candidates have that are smaller and not trained again, or not alone."""

    role: Literal["candidate", "step"] = runtime_knob(
        "candidate",
        "A step is only the way to another candidate: it is scored, and gets no verdict, no export and no version.",
    )

    @property
    def planned_role(self) -> str:
        """That of its maker, but for a step."""
        return "step" if self.role == "step" else self.role_by_maker

    @property
    def role_by_maker(self) -> str:
        """Its role where it is judged, a name of ``ROLES``."""
        return "student"


def unlike_knobs(ours: Mapping[str, object], theirs: Mapping[str, object], section: str = "") -> tuple[str, ...]:
    """Return the names of knobs that differ; of a section that only one of both has, its name alone, and of a shape the
    knobs without its name."""
    found: list[str] = []
    for name in {**ours, **theirs}:
        own, other = ours.get(name), theirs.get(name)
        if name == "shape":
            found += unlike_knobs(own if isinstance(own, Mapping) else {}, other if isinstance(other, Mapping) else {})
        elif isinstance(own, Mapping) and isinstance(other, Mapping):
            found += unlike_knobs(own, other, f"{section}{name}.")
        elif own != other:
            found.append(f"{section}{name}")
    return tuple(sorted(found))
