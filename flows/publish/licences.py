"""The sources of a model and their licences, as stated in the recipe: the only place that states them, so a licence
left out there is unknown."""

from __future__ import annotations

from flows.run.opening import teacher_name
from tasks.recipe.recipe import Recipe
from tasks.report.hub_header import public
from tasks.results.run import Licence


def licences_of(recipe: Recipe) -> list[Licence]:
    """Return every source of a run's models with its licence; a local path is reduced to its last part."""
    teacher, data, augmentation = recipe.teacher, recipe.data, recipe.augmentation
    named = teacher_name(recipe) if recipe.pretraining else teacher.model
    found = [("Teacher", named, teacher.licence), ("Data", data.source or recipe.spec.name, data.licence)]
    found += [
        ("Additional teacher", other.model, other.licence)
        for other in (recipe.ensemble.teachers if recipe.ensemble else ())
    ]
    found += [
        (what, text.source, text.licence)
        for what, text in (("Corpus", recipe.corpus), ("Transfer text", recipe.transfer))
        if text
    ]
    if augmentation and augmentation.masked_lm not in (None, "teacher"):
        found.append(("Masked language model", str(augmentation.masked_lm), augmentation.masked_lm_licence))
    if augmentation and augmentation.word_vectors:
        found.append(("Word vectors", augmentation.word_vectors, augmentation.word_vectors_licence))
    return [{"what": what, "source": public(source), "licence": licence} for what, source, licence in found]
