"""The colours of the page and of its charts by name, on light and on dark ground; the style sheets use the names."""

from __future__ import annotations

from tasks.results.roles import ROLES

LIGHT = {
    "paper": "#f6f5f1",
    "card": "#ffffff",
    "ink": "#1d2126",
    "quiet": "#59616b",
    "rule": "#dedcd3",
    "soft": "#eeece5",
    "accent": "#0b6b66",
    **{name: role.colour for name, role in ROLES.items()},
    **dict(
        zip(
            (f"hue{number}" for number in range(8)),
            ("#0b6b66", "#b1520c", "#6a4aa3", "#2560b8", "#a3305f", "#5d6d12", "#7a4a2b", "#4d5563"),
            strict=True,
        )
    ),
}
DARK = {
    "paper": "#15181b",
    "card": "#1d2125",
    "ink": "#e8e8e4",
    "quiet": "#a2a9b1",
    "rule": "#363c42",
    "soft": "#262b30",
    "accent": "#4fc4b8",
    **{name: role.colour_on_dark for name, role in ROLES.items()},
    **dict(
        zip(
            (f"hue{number}" for number in range(8)),
            ("#4fc4b8", "#f0a05a", "#b79bec", "#7fb0f5", "#ee86b2", "#bfcd5f", "#d8a888", "#b4bcc6"),
            strict=True,
        )
    ),
}
