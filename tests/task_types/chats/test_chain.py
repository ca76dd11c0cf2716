"""Language models that answer, from a table of chats to a pulled one that is asked: teacher, a student on its kept
answers, gate, registration, graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.scoring.continuing import continued_texts
from tasks.scoring.predict import predict_texts
from tests.forked.strangers import print_of_program
from tests.task_types.chats.tables import chats, write_answering, write_chats
from tests.task_types.next_words.test_chain import EXPORTED, values_for


@pytest.mark.parametrize("exported", [{}, pytest.param(EXPORTED, marks=pytest.mark.slow)], ids=["models", "graphs"])
def test_a_model_that_answers_is_distilled_and_asked(
    prefect_server: None,
    engines_here: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    exported: dict[str, Any],
) -> None:
    home, model = Home(tmp_path / "home").create(), write_answering(tmp_path / "decoder")
    values = values_for(model, write_chats(tmp_path / "table")) | {"layer_dropping": None} | exported
    values["task"] = {"name": "chats", "kind": "chats", "text": "messages"}
    values["teacher"]["max_length"] = values["scoring"]["max_length"] = 96
    values["task_distillation"]["prediction"]["max_length"] = 96
    values["students"] = values["students"][:1]
    name = values["gate"]["register_as"] = "answers-in-graphs" if exported else "answers"
    result = run_recipe(Recipe.model_validate(values), home=home, json_path=home.root / "out.json")
    models = {one["name"]: one for one in result["models"]}
    assert {*models} == {"teacher", "half", *(["half-onnx", "half-int8"] if exported else [])}
    found = {label: one["metrics"]["validation"]["word_perplexity"]["value"] for label, one in models.items()}
    assert all(np.isfinite(value) for value in found.values())
    (file,) = home.root.rglob("answers.safetensors")
    stored = load_file(file)
    assert stored["kept_ids"].shape == (stored["counts"].sum(), 16)
    answers = [one["content"] for chat in chats(120) for one in chat if one["role"] == "assistant"]
    assert stored["counts"].sum() < 16 * len(answers), "questions and instructions are not learned"
    assert "Likelihood of held-out answers" in next(home.root.rglob("report.html")).read_text()
    folder = tmp_path / "model"
    number = next(one["version"] for one in result["registered"] if one["candidate"] == "half")
    Tracker(home.own_tracking_uri, home.artifacts).download(name, str(number), folder)
    question = {"role": "user", "content": "the good film 7310 was very good ."}
    good, other = (
        json.dumps([question, {"role": "assistant", "content": content}])
        for content in ("good , as 7310 is", "seven ; 0137 if I")
    )
    one, two = predict_texts(folder, [good, other])
    assert one["token_perplexity"] < two["token_perplexity"]  # type: ignore[operator]
    written = continued_texts(folder, [question["content"], json.dumps([question])], 8)
    assert written[0] == written[1] and written[0]
    if exported:
        graph = continued_texts(folder, [question["content"]], 8, "onnx")
        assert graph == written[:1]
        said = predict_texts(folder, [good, other], export_format="onnx")
        assert [each["token_perplexity"] for each in said] == pytest.approx(
            [one["token_perplexity"], two["token_perplexity"]], rel=1e-3
        )
    capsys.readouterr()
    printed, programs = list[str](), (folder / "README.md").read_text().split("```python\n")[1:]
    for snippet in programs[: 2 if exported else 1]:
        exec(compile(snippet.split("```")[0].replace("FOLDER", str(folder)), "card", "exec"), {})
        printed.append(capsys.readouterr().out.strip())
    if exported:
        alone = programs[1].split("```")[0].replace("FOLDER", str(folder))
        printed.append(print_of_program(alone, tmp_path).strip())
    assert len({*printed}) == 1 and printed[0]
