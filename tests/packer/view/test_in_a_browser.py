"""The page in a real headless Chromium: what it draws, keys, sizes, light and dark, and served."""

from __future__ import annotations

import threading

import cv2
import pytest

from packer.building.build import build
from packer.view.make import view_raw, view_store
from packer.view.server import ViewServer
from packer.view.store_view import StoreView
from tests.packer.view.conftest import EVIL, EVIL_TOO

COUNT = "document.querySelectorAll({!r}).length".format
VISIBLE = (
    "[...document.querySelectorAll({!r})].filter((n) => n.getClientRects().length).length"
).format


@pytest.fixture(scope="module")
def page_path(coco_store, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "preview.html"
    view_store(coco_store, path)
    return path


def test_all_that_objects_have_is_drawn_and_names_are_text(browser, page_path):
    """Boxes, outlines, runs, points and limbs; a class that is called <script> is a name, nothing
    that it says is done, and no address but the page's own is asked for."""
    with browser.page(page_path.as_uri()) as page:
        assert page.value(COUNT(".tile")) == 4
        assert page.value(COUNT(".tile g.box")) == 6
        assert page.value(COUNT(".tile g.outline path.fill")) == 6
        assert page.value(COUNT(".tile g.points")) == 4
        # Nose, shoulders and a hip: the shoulders are joined, and the nose to nothing.
        assert page.value(COUNT(".tile g.points path.line")) == 4
        assert page.value(COUNT(".tile .loose")) == 4  # Crowds are dashed, box and outline.
        names = page.value("[...document.querySelectorAll('select option')].map((o) => o.value)")
        assert EVIL in names
        assert EVIL_TOO in names
        # A class is chosen by its colour, too: two of the pictures have a crowd.
        legend = "[...document.querySelectorAll('.legend button')]"
        assert page.value(f"{legend}.map((b) => b.textContent)") == [EVIL, EVIL_TOO]
        page.value(f"{legend}[1].click()")
        assert page.value(COUNT(".tile")) == 2
        assert page.value("document.title") != "owned"
        assert page.value(COUNT("body img")) == 0
        assert page.requests() == [page_path.as_uri()]
        assert page.problems() == []


def test_keys_search_move_open_and_close(browser, page_path):
    """Without a mouse: every part of the page is reached, and what had the focus has it again."""
    active = "document.activeElement.getAttribute('data-at')"
    with browser.page(page_path.as_uri()) as page:
        page.press("ArrowRight", "ArrowRight")
        assert page.value(active) == "1"
        page.press("Enter")
        assert page.value("document.querySelector('dialog').open")
        assert "001.png" in page.value("document.querySelector('dialog h2').textContent")
        page.press("ArrowRight")
        assert "002.png" in page.value("document.querySelector('dialog h2').textContent")
        assert EVIL in page.value("document.querySelector('dialog .objects').textContent")
        assert "original_size" in page.value("document.querySelector('.fields').textContent")
        page.press("Escape")
        assert not page.value("document.querySelector('dialog').open")
        page.wait_until(f"{active} === '2'")
        assert page.value(VISIBLE(".tile g.box")) == 6
        page.press("b")
        assert page.value(VISIBLE(".tile g.box")) == 0
        page.press("/", "3", ".")
        assert page.value("document.activeElement.type") == "search"
        page.wait_until("document.querySelectorAll('.tile').length === 1")
        page.press("Escape", "3")
        assert page.value("!document.getElementById('rejects').hidden")
        assert "no area" in page.value("document.getElementById('rejects').textContent")
        page.value("document.getElementById('tab-rejects').focus()")
        page.press("ArrowRight", "ArrowRight", "ArrowLeft")
        assert page.value("!document.getElementById('about').hidden")
        assert page.problems() == []


@pytest.mark.parametrize(
    ("width", "height", "dark"), [(360, 740, True), (900, 700, False), (1600, 1000, True)]
)
def test_any_window_shows_it_whole(browser, page_path, tmp_path, width, height, dark):
    """On a telephone, a small window and a large one, in light and dark: nothing sticks out on the
    right, and the large view fills the window."""
    fits = "document.documentElement.scrollWidth <= innerWidth"
    with browser.page(page_path.as_uri(), width=width, height=height, dark=dark) as page:
        for part in ("1", "2", "3", "4"):
            page.press(part)
            assert page.value(fits), part
        page.press("1")
        page.screenshot(tmp_path / "sheet.png")
        pixels = cv2.imread(str(tmp_path / "sheet.png"))
        assert pixels.shape[:2] == (height, width)
        assert (pixels[-3:, :3].mean() < 80) == dark  # The ground, at the lower left.
        page.press("ArrowRight", "Enter")
        box = page.value("document.querySelector('.stage svg').getBoundingClientRect().toJSON()")
        assert box["width"] > 0.3 * width or box["height"] > 0.3 * height
        assert page.value(fits)
        assert page.problems() == []


def test_a_served_store_is_paged_through(browser, tmp_path, raw, monkeypatch):
    """All samples come, in parts, and a class or a word is looked for by the server."""
    monkeypatch.setattr("packer.view.server.AT_ONCE", 3)
    monkeypatch.setattr("packer.view.server.LOOKED_AT_MAX", 5)
    build(raw, tmp_path / "out.lmdb", worker_count=1)
    with ViewServer(StoreView(tmp_path / "out.lmdb")) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            with browser.page(server.url) as page:
                page.wait_until("document.querySelectorAll('.tile').length === 12")
                page.value(
                    "(() => { const s = document.querySelector('select'); s.value = 'bee';"
                    " s.dispatchEvent(new Event('change')); })()"
                )
                page.wait_until("document.querySelectorAll('.tile').length === 4")
                page.press("ArrowRight", "Enter")
                assert page.value("document.querySelector('dialog').open")
                assert page.problems() == []
                assert all(url.startswith(server.url) for url in page.requests())
        finally:
            server.stop()
            thread.join(60)
    assert not thread.is_alive()


def test_raw_data_is_drawn_before_it_is_built(browser, coco_raw, tmp_path):
    """With what its layout is taken for, and what would be rejected."""
    view_raw(coco_raw, tmp_path / "raw.html")
    with browser.page((tmp_path / "raw.html").as_uri()) as page:
        assert page.value(COUNT(".tile g.outline")) == 6
        page.press("4")
        assert "coco" in page.value("document.getElementById('about').textContent")
        page.press("1", "ArrowRight", "Enter")
        assert "has no area" in page.value("document.querySelector('dialog .side').textContent")
        assert page.problems() == []
