"""What a person sees and does: every page opens clean, wide and narrow, light and dark."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page

from tests.browser.conftest import Pages
from tests.report.test_html import full, layered, poisoned
from whynan.diagnosis.engine import diagnose
from whynan.model import Diagnosis
from whynan.recording import Recording
from whynan.report import html

CASES = [
    "distill_log_of_softmax", "grad_triplet_duplicate", "silent_hand_clip", "opt_sgd_diverges",
    "csv_missing_value", "exec_thread_distill", "vae_exp_logvar", "silent_rmsnorm_half",
    "poisson_rate_assert", "class_weights_missing_class", "exec_complex_phat", "grad_custom_backward",
]  # fmt: skip


class Opened:
    """A page with everything it complained of or asked for."""

    def __init__(self, browser: Browser, path: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.trouble: list[str] = []
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self._asked(request.url))
        self.own = path.as_uri()
        self.page.goto(self.own)

    def _dialog(self, dialog: Dialog) -> None:
        self.trouble.append("dialog")
        dialog.dismiss()

    def _asked(self, url: str) -> None:
        if url != self.own and not url.startswith("data:"):
            self.trouble.append(f"request {url}")

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.trouble == []


def written(folder: Path, diagnosis: Diagnosis) -> Path:
    html.write(diagnosis, folder / "report.html")
    return folder / "report.html"


def lightness(page: Page, selector: str = "body", of: str = "backgroundColor") -> float:
    script = f"e => getComputedStyle(e).{of}.match(/[0-9.]+/g).slice(0, 3).map(Number)"
    parts: list[float] = page.locator(selector).first.evaluate(script)
    return sum(parts) / 3


@pytest.mark.parametrize("case", CASES)
def test_the_page_of_a_failing_program_shows_it(case: str, browser: Browser, pages: Pages) -> None:
    with Opened(browser, pages.of(case)) as page:
        for width in (1600, 400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.locator("h1").is_visible()
            assert page.locator(".chain > .origin").is_visible()
            assert page.locator(".chain > .sink").is_visible()
            assert page.locator("mark.origin").first.is_visible()
            assert page.locator(".said.origin").first.is_visible()
            assert page.locator(".fixes li").first.is_visible()
            charts = page.locator("figure.chart[data-name]")
            assert all(charts.nth(i).is_visible() for i in range(charts.count()))
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (800, 900), (400, 850)])
def test_the_change_is_seen_without_scrolling(
    width: int, height: int, browser: Browser, tmp_path: Path
) -> None:
    view: Any = {"width": width, "height": height}
    with Opened(browser, written(tmp_path, full()), viewport=view) as page:
        box = page.locator(".fixes li").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < height
        if width > 1000:
            mark = page.locator("mark.origin").first.bounding_box()
            assert mark is not None
            assert mark["y"] < height


def test_no_table_of_operands_is_cut_off_on_a_telephone(browser: Browser, tmp_path: Path) -> None:
    with Opened(browser, written(tmp_path, full()), viewport={"width": 400, "height": 850}) as page:
        cut = "[...document.querySelectorAll('.scroll:has(.cards)')].map(e => e.scrollWidth - e.clientWidth)"
        assert page.evaluate(cut) == [0]


def test_dark_and_light_follow_the_system_and_paper_is_white(
    browser: Browser, tmp_path: Path
) -> None:
    path = written(tmp_path, full())
    with Opened(browser, path, color_scheme="light") as page:
        assert lightness(page) > 230
    with Opened(browser, path, color_scheme="dark") as page:
        assert lightness(page) < 40
        assert lightness(page, "section") < 50
        page.emulate_media(media="print")
        assert lightness(page, "section") > 230


def test_the_whole_story_is_printed(browser: Browser, tmp_path: Path) -> None:
    with Opened(browser, written(tmp_path, full())) as page:
        closed = "document.querySelectorAll('.chain details:not([open])').length"
        before = page.evaluate(closed)
        assert before > 0
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(closed) == 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(closed) == before
        assert page.pdf().startswith(b"%PDF")


def test_the_keyboard_reaches_everything(browser: Browser, tmp_path: Path) -> None:
    with Opened(browser, written(tmp_path, full())) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
        reached = set()
        for _ in range(80):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.tagName.toLowerCase()"))
        assert {"a", "summary", "button", "svg", "pre", "div"} <= reached


def test_a_link_of_the_chain_leads_to_the_line(browser: Browser, tmp_path: Path) -> None:
    with Opened(browser, written(tmp_path, full())) as page:
        page.locator(".chain > .origin a").focus()
        page.keyboard.press("Enter")
        target = page.locator("tr:target")
        assert target.locator(".number").inner_text() == "3"
        assert target.locator("mark.origin").is_visible()


def test_tensor_summaries_unfold(browser: Browser, tmp_path: Path) -> None:
    with Opened(browser, written(tmp_path, full())) as page:
        summary = page.locator(".chain > .origin summary")
        summary.focus()
        page.keyboard.press("Enter")
        assert "float32 2x3" in page.locator(".chain > .origin .tensors").inner_text()


def test_a_chart_tells_its_values(browser: Browser, tmp_path: Path) -> None:
    with Opened(browser, written(tmp_path, full())) as page:
        chart = page.locator("figure[data-name=lr]")
        chart.locator("svg").hover()
        assert chart.locator("output").inner_text().endswith(": 0.001")
        chart.locator("svg").focus()
        page.keyboard.press("End")
        assert chart.locator("output").inner_text() == "step 29: 0.001"
        page.keyboard.press("ArrowLeft")
        assert chart.locator("output").inner_text() == "step 28: 0.001"


def test_the_heat_map_tells_its_cells(browser: Browser, tmp_path: Path) -> None:
    with Opened(browser, written(tmp_path, full())) as page:
        first = page.locator("figure.map").first
        first.locator(".cells").hover(position={"x": 3, "y": 20})
        assert first.locator("output").inner_text() == "net.1.weight, step 0: 1"
        assert first.locator("img").evaluate("i => [i.naturalWidth, i.naturalHeight]") == [30, 4]


def test_a_change_can_be_copied(browser: Browser, tmp_path: Path) -> None:
    path = written(tmp_path, full())
    with Opened(browser, path, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.locator("button.copy").click()
        page.get_by_text("copied", exact=True).wait_for()
        patch = full().anomalies[0].finding.fixes[0].patch
        assert page.evaluate("navigator.clipboard.readText()") == patch


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    with Opened(browser, written(tmp_path, poisoned(full()))) as page:
        assert "<script>alert(1)</script>" in page.locator("h1").inner_text()
        assert page.locator("script").count() == 1
        assert page.locator("img[src=x]").count() == 0


def test_pictures_have_words_for_those_who_cannot_see_them(
    browser: Browser, tmp_path: Path
) -> None:
    with Opened(browser, written(tmp_path, full())) as page:
        pictures = page.get_by_role("img")
        assert pictures.count() >= 8
        names = "es => es.map(e => e.getAttribute('aria-label') || e.getAttribute('alt') || '')"
        assert all(pictures.evaluate_all(names))
        levels = page.locator("h1, h2, h3").evaluate_all("es => es.map(e => +e.tagName[1])")
        assert levels[0] == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))


def test_a_healthy_run_and_several_anomalies_open_clean(browser: Browser, tmp_path: Path) -> None:
    healthy = diagnose(Recording(steps=20_000, history=layered(20_000)))
    with Opened(browser, written(tmp_path, healthy)) as page:
        assert page.locator("h1").inner_text() == "no harm found in 20,000 steps"
        assert page.locator("figure.map").count() == 2
    several = replace(full(), anomalies=full().anomalies * 3)
    with Opened(browser, written(tmp_path, several)) as page:
        page.locator("nav a").nth(2).click()
        assert page.locator("article:target h2").inner_text().startswith("3. ")


JUPYTER = "<body data-jp-theme-light='{}'>"
NOTEBOOKS = {  # what a notebook says of its theme, and whether that is dark
    "JupyterLab, light": (JUPYTER.format("true"), False),
    "JupyterLab, dark": (JUPYTER.format("false"), True),
    "classic": ("<body class='notebook_app'>", False),
    "VS Code, light": ("<body class='vscode-light'>", False),
    "VS Code, dark": ("<body class='vscode-dark'>", True),
    "VS Code, high contrast": ("<body class='vscode-high-contrast'>", True),
    "VS Code, high contrast, light": (
        "<body class='vscode-high-contrast-light vscode-high-contrast'>", False
    ),
    "Colab, dark": ("<html theme='dark'><body>", True),
}  # fmt: skip


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_theme_is_followed_and_not_the_system(
    notebook: str, browser: Browser, tmp_path: Path
) -> None:
    body, dark = NOTEBOOKS[notebook]
    fragments = html.fragment(full()) + full().anomalies[0].origin.inputs[0].stats._repr_html_()  # type: ignore[union-attr]
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html>{body}{fragments}")
    with Opened(browser, path, color_scheme="light" if dark else "dark") as page:
        for block in (".whynan", "section", ".whynan-tensor"):
            assert (lightness(page, block) < 50) is dark
        ink = lightness(page, "h3", "color")
        assert abs(ink - lightness(page, ".whynan")) > 150
        pill = ".verdict:not(.verified, .failed)"
        assert abs(ink - lightness(page, pill)) > 100
        assert not page.locator(".chain > .origin").is_visible()  # a cell's output is short
        page.locator("details.folded > summary").first.click()
        assert page.locator(".chain > .origin").is_visible()
        assert page.locator("button.copy").is_hidden()  # it would do nothing without the script


def test_a_long_line_goes_on_below_so_that_the_guilty_part_is_seen(
    browser: Browser, tmp_path: Path
) -> None:
    base = full()
    site = replace(base.anomalies[0].origin.site, column=404, end_column=411, source="")  # type: ignore[type-var]
    anomaly = base.anomalies[0]
    evidence = replace(
        anomaly.evidence,
        origin=replace(anomaly.origin, site=site),
        quotes={"t.py": {3: f"    {'a + ' * 100}x.log()"}},
    )
    long = replace(base, anomalies=(replace(anomaly, evidence=evidence),))
    with Opened(browser, written(tmp_path, long), viewport={"width": 400, "height": 900}) as page:
        mark = page.locator("mark.origin").first
        assert mark.inner_text() == "x.log()"
        box = mark.bounding_box()
        assert box is not None
        assert box["x"] > 0
        assert box["x"] + box["width"] < 400
        number = page.locator("tr.origin .number").bounding_box()
        assert number is not None
        assert number["y"] < box["y"] - 100


# Rules as JupyterLab has them for what a cell shows, which once reached into the report.
NOTEBOOK_STYLE = """
.jp-RenderedHTMLCommon dl dt { float: left; width: 20%; }
.jp-RenderedHTMLCommon ul { list-style: disc; padding-left: 4em; }
.jp-RenderedHTMLCommon table tr, .jp-RenderedHTMLCommon table td { text-align: right; max-width: 2em; }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: rgb(1, 2, 3); }
.jp-RenderedHTMLCommon code { background: rgb(1, 2, 3); padding: 1px 5px; }
"""


def test_the_styles_of_a_notebook_do_not_reach_into_the_report(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(
        f"<!doctype html><style>{NOTEBOOK_STYLE}</style><body data-jp-theme-light='true'>"
        f"<div class='jp-RenderedHTMLCommon'>{html.fragment(full())}<code id=own>own</code></div>"
    )

    def style(page: Page, where: str, name: str) -> str:
        script = "([w, n]) => getComputedStyle(document.querySelector(w))[n]"
        return str(page.evaluate(script, [where, name]))

    with Opened(browser, path, viewport={"width": 1300, "height": 900}) as page:
        assert style(page, ".facts dt", "float") == "none"
        assert float(style(page, ".facts dt", "width")[:-2]) > 100
        assert style(page, ".chips", "paddingLeft") == "0px"
        assert style(page, "table.code td:last-child", "textAlign") == "left"
        assert style(page, "table.code tr", "backgroundColor") == "rgba(0, 0, 0, 0)"
        assert style(page, "table.code code", "paddingRight") == "0px"
        assert style(page, "#own", "backgroundColor") == "rgb(1, 2, 3)"  # nor ours into its own


def test_the_width_of_the_page_decides_how_many_columns_there_are(
    browser: Browser, tmp_path: Path
) -> None:
    with Opened(browser, written(tmp_path, full())) as page:
        for width, columns in ((800, 1), (1600, 2)):
            page.set_viewport_size({"width": width, "height": 900})
            script = "c => getComputedStyle(c).gridTemplateColumns.split(' ').length"
            assert page.locator(".columns").first.evaluate(script) == columns


def test_the_report_is_drawn_where_no_script_may_run(browser: Browser, tmp_path: Path) -> None:
    """As in a sandboxed view of VS Code, which gives its theme as a class of the body."""
    inner = f"<body class='vscode-dark'>{html.fragment(full())}"
    escaped = inner.replace("&", "&amp;").replace('"', "&quot;")
    path = tmp_path / "view.html"
    path.write_text(f'<!doctype html><iframe sandbox="" width=800 height=900 srcdoc="{escaped}">')
    with Opened(browser, path) as page:
        frame = page.frame_locator("iframe")
        frame.locator("details.folded > summary").first.click()
        assert frame.locator(".chain > .origin").is_visible()
        assert frame.locator("h3").first.is_visible()
        assert frame.locator("button.copy").is_hidden()
