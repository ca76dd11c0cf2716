"""``python -m tests.docs`` writes the generated tables of all READMEs, and the JSON schema of recipes, anew."""

from __future__ import annotations

from tests.docs.readmes import READMES, name_of
from tests.docs.tables import write, write_schema

if __name__ == "__main__":
    if write_schema():
        print("the JSON schema of recipes: written anew")
    for path in READMES:
        if write(path):
            print(f"{name_of(path)}: written anew")
