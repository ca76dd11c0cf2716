"""The page in a real browser: no request leaves it, nothing is cut off or flows over, and the first screen holds the
answers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tasks.report.page.page import compare_page, sweep_page
from tests.browser import DRIVER, QUIET, Browser, browser
from tests.report.figures import row
from tests.report.test_comparison import NEW, OLD, run
from tests.report.test_page import CURVES, HOSTILE, TEXTS, WHOLE, run_page, whole
from tests.report.test_steps import CHAIN, made, scored
from tests.web_server import answered_by

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the page was not looked at in a browser")
SCREENS = {1280: 800, 390: 844}
LOOK = """
const page = frame.contentDocument, wide = page.documentElement;
const over = [...page.querySelectorAll("main *")].filter(one => !one.closest(".wide, pre, svg") && one.getBoundingClientRect().right > wide.clientWidth + 1);
const cut = [...page.querySelectorAll("svg text")].filter(one => {
  const inside = one.getBoundingClientRect(), whole = one.closest("svg").getBoundingClientRect();
  return !one.closest("details") && (inside.left < whole.left - 3 || inside.right > whole.right + 12);
});
const tall = [...page.querySelectorAll(".large")].filter(one => one.getBoundingClientRect().height > 1.7 * parseFloat(getComputedStyle(one).lineHeight));
const scrolled = [...page.querySelectorAll(".wide")].filter(one => one.scrollWidth > one.clientWidth + 1);
document.body.append(JSON.stringify({
  scroll: wide.scrollWidth, width: wide.clientWidth, first: Math.round(page.querySelector(".first").getBoundingClientRect().bottom),
  over: over.map(one => one.tagName + "." + one.className + " " + one.textContent.slice(0, 40)), cut: cut.map(one => one.textContent),
  tall: tall.map(one => one.textContent), scrolled: scrolled.map(one => one.getAttribute("aria-label")),
}));
"""  # noqa: E501


@contextmanager
def counting_proxy() -> Iterator[tuple[str, list[str]]]:
    """Run a proxy that notes what it is asked for and gives nothing."""
    asked: list[str] = []

    class Refuse(BaseHTTPRequestHandler):
        def refuse(self) -> None:
            asked.append(self.path)
            self.send_error(403)

        do_GET = do_POST = do_CONNECT = do_HEAD = refuse

        def log_message(self, *given: Any) -> None:
            """Say nothing."""

    with answered_by(Refuse) as port:
        yield f"http://127.0.0.1:{port}", asked


def browse(place: Path, html: str, *more: str) -> str:
    """Return the document that Chromium makes of a page."""
    (place / "shown.html").write_text(html, encoding="utf-8")
    # A real browser, whose own look-ups (updates, safe browsing) are switched off: what the proxy hears is the page's.
    quiet = [*QUIET, "--virtual-time-budget=2000", f"--user-data-dir={place / 'profile'}"]
    command = [str(CHROMIUM), *quiet, *more, "--dump-dom", (place / "shown.html").as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def seen(place: Path, page: str, width: int) -> dict[str, Any]:
    """Return what a screen of this width shows."""
    (place / "page.html").write_text(page, encoding="utf-8")
    spec = f'<iframe id="frame" src="page.html" style="border:0;width:{width}px;height:{SCREENS[width]}px"></iframe>'
    html = f"<!doctype html><body>{spec}<script>frame.onload = () => {{ {LOOK} }}</script>"
    found = re.search(r"\{\"scroll\".*?\}(?=</body>)", browse(place, html, "--allow-file-access-from-files"), re.DOTALL)
    assert found, "the page did not load"
    return dict(json.loads(unescape(found[0])))


def crowd() -> dict[str, Any]:
    """Return a result with many candidates, long names and long answers."""
    result = whole(labels=["a label of some length", "good"], synthetic=True)
    many = range(20)
    result["models"] += [
        row(f"a-candidate-with-a-long-name-{each}", latency_ms=1.3**each, bytes=1e6 * 1.3**each, seeds=[0, 1, 2])
        for each in many
    ]
    result["models"] += [row(f"alternate-even-{drop}", "dropped") for drop in range(1, 7)]
    return result


def stepped() -> dict[str, Any]:
    """Return a result with two chains of candidates."""
    long = made("a-candidate-with-a-long-name", "neurons", "vocabulary-trimming", bytes=210e6, **scored(0.935))
    return whole(models=[*CHAIN, long])


PAGES = {"whole": whole, "crowd": crowd, "stepped": stepped}


@pytest.mark.parametrize("width", sorted(SCREENS))
@pytest.mark.parametrize("name", sorted(PAGES))
def test_nothing_flows_over_and_the_answers_are_on_the_first_screen(tmp_path: Path, name: str, width: int) -> None:
    found = seen(tmp_path, run_page(PAGES[name](), curves=CURVES, texts={"7": ["word" * 200, "a second text"]}), width)
    assert found["scroll"] <= found["width"] and found["over"] == [] and found["cut"] == []
    assert found["first"] <= SCREENS[width] and found["tall"] == [], (
        "a unit that does not fit beside its figure takes a low line below"
    )


@pytest.mark.parametrize("width", sorted(SCREENS))
def test_a_sweep_flows_over_as_little(tmp_path: Path, width: int) -> None:
    found = seen(tmp_path, sweep_page(WHOLE | {"stages": [], "links": {}, "task": "sst2"}), width)
    assert found["scroll"] <= found["width"] and found["over"] == [] and found["cut"] == []
    assert found["first"] <= SCREENS[width]


def test_runs_side_by_side_fit_on_a_phone(tmp_path: Path) -> None:
    """Each table of a comparison had to be scrolled sideways, and the names of its rows went out of sight."""
    long = run("9f" * 4, {"teacher.model": "organisation/a-model-of-a-long-name" * 2}, [row("a-candidate-" * 4)])
    found = seen(tmp_path, compare_page([OLD, NEW, long]), 390)
    assert found["scroll"] <= found["width"] and found["over"] == [] and found["scrolled"] == []


MARK = """
const spot = document.querySelector("svg .spot:has(.tip)");
spot.scrollIntoView({block: "center"});
const mark = spot.querySelector(".area").getBoundingClientRect();
return {x: Math.round(mark.left + mark.width / 2), y: Math.round(mark.top + mark.height / 2)};
"""
SHOWN = """
await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
const visible = tip => getComputedStyle(tip).visibility === "visible";
return [...document.querySelectorAll(".tip")].filter(visible).map(tip => ({
  said: [...tip.querySelectorAll("text")].map(one => one.textContent),
  left: tip.getBoundingClientRect().left, right: tip.getBoundingClientRect().right, width: innerWidth,
}));
"""


def pointed_at(window: Browser, x: int, y: int, pointer: str) -> None:
    """Move a mouse to a place of the screen, or touch it with a finger."""
    move = {"type": "pointerMove", "duration": 0, "x": x, "y": y}
    touch = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}] if pointer == "touch" else []
    device = {"type": "pointer", "id": pointer, "parameters": {"pointerType": pointer}, "actions": [move, *touch]}
    window.ask("POST", "/actions", {"actions": [device]})


TAB = "\ue004"  # as WebDriver writes the key
NAME = 'return document.activeElement.getAttribute("aria-label")'


def reached_by_tab(window: Browser, wanted: str) -> bool:
    """Press Tab until an element that fits a selector has the focus; return whether one had it after 100 presses."""
    press = [{"type": "keyDown", "value": TAB}, {"type": "keyUp", "value": TAB}]
    for _ in range(100):
        window.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": press}]})
        if window.run(f"return document.activeElement.matches('{wanted}')"):
            return True
    return False


@pytest.mark.skipif(DRIVER is None, reason="no chromedriver here: nobody pointed at a chart")
def test_a_mark_shows_its_values_under_a_pointer_a_finger_and_the_keyboard(tmp_path: Path) -> None:
    """Without a script: the page forbids them, and a mailed page has none."""
    (tmp_path / "page.html").write_text(run_page(whole(), curves=CURVES), encoding="utf-8")
    for pointer, width in (("mouse", 1280), ("touch", 390)):
        with browser(tmp_path, f"--window-size={width},844") as window:
            window.open((tmp_path / "page.html").as_uri())
            place = window.run(MARK)
            assert window.run(SHOWN) == []
            pointed_at(window, place["x"], place["y"], pointer)
            [note] = window.run(SHOWN)
            assert len(note["said"]) >= 3 and note["said"][1].startswith("accuracy 0."), note
            assert note["left"] >= -1 and note["right"] <= note["width"] + 1, (pointer, note)
            pointed_at(window, 0, 0, pointer)
            assert reached_by_tab(window, ".spot")
            [note] = window.run(SHOWN)
            assert note["said"] and "; ".join(note["said"]) == window.run(NAME), "seen and read to a person alike"


def test_no_request_leaves_the_page(tmp_path: Path) -> None:
    result = whole(labels=[HOSTILE, "good"], recipe=HOSTILE)
    with counting_proxy() as (proxy, asked):
        through = (f"--proxy-server={proxy}", "--proxy-bypass-list=<-loopback>")
        browse(tmp_path, '<!doctype html><img src="http://somewhere.example/picture.png">', *through)
        assert any("somewhere.example" in address for address in asked), "the proxy hears what a page asks for"
        asked.clear()
        page = browse(tmp_path, run_page(result, curves=CURVES, texts=TEXTS | {"7": [HOSTILE, None]}), *through)
        assert "Use 4x312" in page and not [address for address in asked if "google" not in address]
