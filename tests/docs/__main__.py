"""``python -m tests.docs`` writes the generated tables of all READMEs anew."""

from __future__ import annotations

from tests.docs.readmes import READMES, name_of
from tests.docs.tables import write

if __name__ == "__main__":
    for path in READMES:
        if write(path):
            print(f"{name_of(path)}: written anew")
