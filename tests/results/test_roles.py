"""The roles of models: one table for pages, exports and gate."""

from __future__ import annotations

from tasks.report.page.page import environment
from tasks.results.roles import ROLES, role_of


def test_a_role_of_another_release_is_like_a_student_under_its_own_name() -> None:
    assert role_of("binary").label == "binary" and role_of("binary").registered and role_of("binary").corners == 16


def test_every_role_has_its_colours_in_the_style_sheet_once_for_each_ground() -> None:
    style = environment().get_template("page.css").render()
    for name, role in ROLES.items():
        assert style.count(f" --{name}: {role.colour};") == 1 and style.count(f"{role.colour_on_dark};") >= 1
        assert f".{name} {{ color: var(--{name}); }}" in style
    assert len({(role.corners, role.turn) for role in ROLES.values()}) == len(ROLES), "colour alone says nothing"


def test_what_is_exported_by_default_is_what_gets_a_version() -> None:
    """The folder of an export is that of its model's version."""
    assert {name for name, role in ROLES.items() if role.exported} == {
        name for name, role in ROLES.items() if role.registered
    }
