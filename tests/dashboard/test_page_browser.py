"""The page in a real browser: before a running daemon that wants tokens, and of finished runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.browser import Browsed, kept
from support.live_daemon import log_of, samples, scenario_file, started
from support.live_records import Made, write_run
from support.page_server import served
from support.scenarios import Fixed, scenario, serves, tenant
from support.simulated_records import recorded
from support.waiting import until

from migrator.records.simulated import write_simulations

ADMIN, PHOTOS, CAMERAS = "admin-token-of-the-test", "photos-token-of-the-test", "cameras-token-x-1"
VARIABLES = {"T_ADMIN": ADMIN, "T_PHOTOS": PHOTOS, "T_CAMERAS": CAMERAS}


@pytest.fixture(scope="module")
def url(browser: Browsed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon with tokens whose model of photos has learned a second version."""
    assert browser
    folder = tmp_path_factory.mktemp("page")
    path = scenario_file(folder, "photos", "cameras")
    names = "{admin: T_ADMIN, photos: T_PHOTOS, cameras: T_CAMERAS}"
    text = path.read_text("utf-8").replace("{port: 0}", f"{{port: 0, token_variables: {names}}}")
    path.write_text(text, encoding="utf-8")
    with started(path, folder / "state", **VARIABLES):
        url = _address(folder / "state")
        _teach(url, 40)
        yield url


def _address(state: Path) -> str:
    def said() -> list[str]:
        return re.findall(r'serving at ([^\s"]+)', log_of(state).read_text("utf-8"))

    return str(until(said, lambda: log_of(state).read_text("utf-8")[-2000:])[-1])


def _teach(url: str, count: int) -> None:
    """Requests with labels, and then the version that was learned from them."""
    headers = {"authorization": f"Bearer {PHOTOS}"}
    with httpx.Client(base_url=url, headers=headers, timeout=20) as client:
        for number, (picture, label) in enumerate(zip(*samples(1, count), strict=True)):
            data = picture.reshape(-1).tolist()
            kind = {"name": "input", "datatype": "UINT8", "shape": [1, *picture.shape]}
            body = {"id": f"t{number}", "inputs": [{**kind, "data": data}]}
            client.post("/v2/models/photos/infer", json=body)
            label_sent = {"id": f"t{number}", "label": int(label)}
            client.post("/v2/models/photos/feedback", json=label_sent).raise_for_status()
        admin = {"authorization": f"Bearer {ADMIN}"}

        def learned() -> bool:
            status = client.get("/admin/status", headers=admin).json()
            return bool(status["tenants"]["photos"]["back_to"])

        until(learned, "a second version is learned")


@pytest.fixture(scope="module")
def live(browser: Browsed, url: str) -> Any:
    """The page of the daemon once the token was typed in."""
    page = browser.page(url)
    page.wait_for_selector("#token-text")
    assert page.locator(".pane, [data-action]").count() == 0
    kept(page, "token")
    page.fill("#token-text", "not-the-token")
    page.keyboard.press("Enter")
    page.wait_for_selector("#token-why:has-text('missing or unknown')")
    page.fill("#token-text", ADMIN)
    page.keyboard.press("Enter")
    page.wait_for_selector(".tenant")
    return page


def test_it_shows_the_running_daemon_and_follows_it(live: Any) -> None:
    live.wait_for_selector(".slices g[data-state=ready]")
    live.wait_for_selector(".slices .now", state="attached")
    assert live.locator(".tenant h3").all_inner_texts() == ["photos", "cameras"]
    facts = live.locator(".facts").inner_text()
    for word in ("small", "A100-40GB", "emulated", "static-4-3", "slot"):
        assert word in facts
    windows = live.locator(".strip button").count()
    live.wait_for_selector(f".strip button:nth-child({windows + 1})")
    kept(live, "live")


def test_arrow_keys_go_from_window_to_window(live: Any) -> None:
    live.click("[data-view=newest]")
    live.locator(".strip [aria-selected=true]").focus()
    last = int(live.locator(".strip [aria-selected=true]").inner_text())
    live.keyboard.press("ArrowLeft")
    live.wait_for_selector(f".strip [data-window='{last - 1}'][aria-selected=true]")
    assert live.locator(".head h2").first.inner_text() == f"Window {last - 1}"
    kept(live, "window")
    live.click("[data-view=newest]")


def test_a_model_is_rolled_back_after_it_was_confirmed(live: Any, url: str) -> None:
    button = live.locator("[data-action=roll-back][data-tenant=photos]:not([disabled])")
    button.click()
    kept(live, "confirm")
    live.keyboard.press("Escape")
    live.wait_for_selector("#confirm", state="hidden")
    assert not live.locator("#said").inner_text()
    button.click()
    live.click("#confirm button[value=act]")
    live.wait_for_selector("#said:has-text('version 1 serves again')")
    live.wait_for_selector("td:text-is('roll-back photos')")
    headers = {"authorization": f"Bearer {ADMIN}"}
    status = httpx.get(f"{url}/admin/status", headers=headers, timeout=20).json()
    # the withdrawn one never serves again; what is learned since may have taken over by now
    assert status["tenants"]["photos"]["version"] != 2


def test_a_finished_run_and_one_that_begins_anew(browser: Browsed, tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    write_run(path, Made(ends=True))
    with served(path) as address:
        page = browser.page(address)
        page.wait_for_selector(".slices g[data-state=training], .slices g[data-state=ready]")
        assert "ended" in page.locator(".facts").inner_text()
        assert page.locator("[data-action]").count() == 0
        kept(page, "finished")
    with served(path, port=int(address.rpartition(":")[2])):
        write_run(path)
        page.wait_for_selector(".facts:has-text('live')")
        assert page.locator(".choose select").first.input_value() == "0.2"


def test_two_policies_side_by_side(browser: Browsed, tmp_path: Path) -> None:
    this = scenario(tenant("photos", [20] * 30), tenant("cameras", [8] * 30), windows=3)
    runs = []
    for sizes in ((3, 2), (1, 3)):
        policy = Fixed((serves("photos", 0, sizes[0]), serves("cameras", 4, sizes[1])))
        policy.name = f"fixed-{sizes[0]}-{sizes[1]}"
        runs.append(recorded(this, policy))
    write_simulations(tmp_path / "runs.db", runs)
    with served(tmp_path / "runs.db") as address:
        page = browser.page(address)
        page.wait_for_selector("#beside table")
        assert page.locator(".pane").count() == 2
        heads = page.locator("#beside thead th").all_inner_texts()
        assert heads[1:3] == ["fixed-3-2", "fixed-1-3"]
        page.locator(".pane").first.locator(".strip [data-window='0']").click()
        for pane in (1, 2):
            chosen = f".pane:nth-child({pane}) .strip [data-window='0'][aria-selected=true]"
            page.wait_for_selector(chosen)
        kept(page, "two")


def test_names_are_never_taken_for_anything_else(browser: Browsed, tmp_path: Path) -> None:
    names = ("<img src=x onerror=alert(1)>", "__proto__", "a/b\"'`${x}&amp;")
    instances = [serves(name, 2 * at, 2) for at, name in enumerate(names)]
    this = scenario(*(tenant(name, [20] * 30) for name in names), windows=2)
    policy = Fixed(tuple(instances))
    write_simulations(tmp_path / "runs.db", [recorded(this, policy)])
    with served(tmp_path / "runs.db") as address:
        page = browser.page(address)
        page.wait_for_selector(".tenant:nth-child(3)")
        assert tuple(page.locator(".tenant h3").all_inner_texts()) == names
        assert page.locator("img").count() == 0
        kept(page, "names")


def test_the_browser_reported_no_error(browser: Browsed) -> None:
    assert browser.complaints == []
