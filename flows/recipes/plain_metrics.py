"""Limbeck's metrics as files that need no Limbeck: a module of ``evaluate`` for programs with ``evaluate`` alone.

The definitions are copied as they are; only their imports become relative. ``evaluate.load`` copies the files that the
module itself imports, and none that those import, so the copied module imports all of them.
"""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

from flows.recipes import metric_types
from flows.recipes.own_metrics import module_of_metrics
from tasks.errors import RecipeError

OWN_MODULE = re.compile(r"^from ((?:flows|tasks)(?:\.\w+)*?)\.(\w+) import", re.MULTILINE)
FIRST_IMPORT = "from __future__ import annotations\n"


def write_plain_metrics(folder: Path) -> Path:
    """Write Limbeck's metrics into a new folder, and return the file of the module of ``evaluate``.

    Raises RecipeError for a folder that exists, and for one in a folder that does not.
    """
    if folder.exists() or folder.is_symlink():
        raise RecipeError(f"{folder} exists already; name a new folder")
    if not folder.absolute().parent.is_dir():
        raise RecipeError(f"the folder {folder.absolute().parent} for {folder.name} does not exist; create it")
    main = module_of_metrics()
    texts = texts_from(main)
    others = sorted(set(texts) - {main.stem})
    imported = "\n".join(f"from .{name} import __doc__ as about_{name}" for name in others)
    texts[main.stem] = texts[main.stem].replace(FIRST_IMPORT, f"{FIRST_IMPORT}\n{imported}\n", 1)
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder / main.name


def texts_from(main: Path) -> dict[str, str]:
    """Return the texts of a file and of all of Limbeck's files that it needs, by name, with relative imports."""
    texts, waiting = {}, [(main.stem, main)]
    while waiting:
        name, path = waiting.pop()
        if name in texts:
            continue
        text = path.read_text(encoding="utf-8") if path != Path(metric_types.__file__) else types_as_text()
        texts[name] = OWN_MODULE.sub(r"from .\2 import", text)
        waiting += [(stem, module_file(f"{package}.{stem}")) for package, stem in OWN_MODULE.findall(text)]
    return texts


def module_file(module: str) -> Path:
    """Return the file of a module."""
    found = find_spec(module)
    assert found is not None and found.origin is not None
    return Path(found.origin)


def types_as_text() -> str:
    """Return the module of the metrics' types with its values as they are, without the task types that state them."""
    about = ast.get_docstring(ast.parse(Path(metric_types.__file__).read_text(encoding="utf-8")))
    return f'"""{about}"""\n\n{FIRST_IMPORT}\nMETRIC_TYPES = {metric_types.METRIC_TYPES!r}\n'
