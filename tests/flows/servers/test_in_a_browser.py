"""The servers of ``limbeck ui`` in a real browser: a person logs in by a link, and a website's page gets nowhere on any
port."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.home import Home
from flows.servers.access import Access, read_servers
from tests.attacks import NAME, RULES, attack, website
from tests.browser import CHROMIUM, DRIVER, WHY_NOT, browser
from tests.flows.servers.ui import limbeck_ui

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=WHY_NOT)]


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, str]]:
    home = Home(tmp_path_factory.mktemp("ui") / "home")
    with limbeck_ui(home) as said:
        yield home, said


def ask(access: Access, path: str, body: Any = None) -> Any:
    """Ask a server as one who has its password."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        access.url + path, data=data, headers={"Content-Type": "application/json", "Authorization": access.basic}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def traces(servers: dict[str, Access]) -> list[Any]:
    """Return what a website has left in the servers."""
    flows = ask(servers["prefect"], "/api/flows/filter", {}) + ask(servers["prefect"], "/api/work_pools/filter", {})
    experiments = ask(servers["mlflow"], "/api/2.0/mlflow/experiments/search?max_results=100").get("experiments", [])
    return [one["name"] for one in flows + experiments if one["name"] == NAME]


def test_a_website_reaches_nothing_even_where_its_reader_is_logged_in(ui: tuple[Home, str], tmp_path: Path) -> None:
    servers = read_servers(ui[0].servers_file)
    links = re.findall(r"http://\S+/limbeck/login#\S+", ui[1])
    with website() as (site, posts), browser(tmp_path, RULES) as window:
        for link, words in zip(links, (("Dashboard", "Event Feed"), ("Experiments", "Model training")), strict=True):
            window.open(link)
            window.wait_for(*words)
            window.picture(tmp_path / f"{words[0]}.png")
        window.open(links[0])
        window.wait_for("already used")
        ports = {name: int(access.url.rpartition(":")[2]) for name, access in servers.items()}
        assert attack(window, site, ports) == []
        assert traces(servers) == []
        # The same page, on a server without a guard: it reads, and its forms arrive.
        careless = int(site.rpartition(":")[2])
        won = attack(window, site, {"careless": careless})
        assert {
            "careless: read /: <!doctype html><body>a page</body>",
            "careless, rebound: read /: <!doctype html><body>a page</body>",
        } <= set(won)
        assert len(posts) > 20
        window.open(servers["mlflow"].url)
        window.wait_for("Experiments")  # and the person is logged in as before
