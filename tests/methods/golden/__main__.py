"""``python -m tests.methods.golden`` writes the golden numbers anew, one file for each file of ``tasks/methods``."""

from __future__ import annotations

from pathlib import Path

from tests.methods.golden.numbers import FOLDER, as_text, computed


def main(folder: Path = FOLDER) -> None:
    """Write all files, and take away those of methods that are no more."""
    folder.mkdir(exist_ok=True)
    made = computed()
    for path in folder.glob("*.json"):
        if path.stem not in made:
            path.unlink()
    for method, cases in made.items():
        (folder / f"{method}.json").write_text(as_text(cases), encoding="utf-8")
        print(f"{method}: {len(cases)} cases")


if __name__ == "__main__":
    main()
