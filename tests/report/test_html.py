"""The page shows what was measured, nothing else, and never runs what it quotes."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import failing, recording
from whynan.diagnosis.engine import diagnose
from whynan.model import Cause, Diagnosis, Fix, HistoryRow, TensorStats
from whynan.recording import Recording
from whynan.report import html
from whynan.report.charts import charts_of, thinned
from whynan.report.gauge import bars_of, gauge
from whynan.report.heatmap import heatmaps_of, where_it_began
from whynan.report.scales import whole_ticks

HOSTILE = """"'><script>alert(1)</script><img src=x onerror=alert(1)></style><!--`"""
VOID = {"meta", "img"}


class Outline(HTMLParser):
    """The tags of a page; complains of one that is not closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text += data

    def attributes(self, name: str) -> list[str | None]:
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def full() -> Diagnosis:
    """With something in every part of the page."""
    base = failing(notes=("a note",), history=layered(30))
    stats = TensorStats(shape=(2, 3), dtype="float32", zeros=1, exponents={-140: 1, 0: 3, 5: 2})
    anomaly = base.anomalies[0]
    culprit = replace(anomaly.origin.inputs[0], stats=stats, upstream=anomaly.evidence.path)
    origin = replace(anomaly.origin, inputs=(culprit,), module="encoder.0.attn")
    fixes = (
        Fix(kind="a", title="first", patch="--- t.py\n+++ t.py\n@@ @@\n-x\n+y", verdict="verified"),
        Fix(kind="b", title="second", verdict="failed", evidence="NaN again at step 3"),
        Fix(kind="c", title="third"),
    )
    finding = replace(anomaly.finding, fixes=fixes, causes=(Cause(code="underflow", evidence="e"),))
    evidence = replace(anomaly.evidence, origin=origin)
    return replace(base, anomalies=(replace(anomaly, evidence=evidence, finding=finding),))


def layered(n: int, layers: int = 4) -> tuple[HistoryRow, ...]:
    """A run whose second layer blows up in its last third."""
    grown = [10.0 ** max(0.0, 9 * (step / n - 0.66)) for step in range(n)]
    return tuple(
        HistoryRow(
            step=step, loss=2.0 + 0.1 * math.sin(step), grad_max=grown[step], lr=1e-3,
            layers={f"net.{k}.weight": (grown[step] ** (2 if k == 1 else 1), 3.0) for k in range(layers)},
        )
        for step in range(n)
    )  # fmt: skip


def poisoned(value: Any, kind: Any = None) -> Any:
    """Every text that comes from a run, made hostile."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = typing.get_type_hints(type(value))
        changes = {
            f.name: poisoned(getattr(value, f.name), hints[f.name])
            for f in dataclasses.fields(value)
        }
        return replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(poisoned(item, str) for item in value)
    if isinstance(value, dict):
        return {poisoned(k, str): poisoned(v, str) for k, v in value.items()}
    fixed = typing.get_origin(kind) is typing.Literal
    return HOSTILE + value if isinstance(value, str) and not fixed else value


def test_hostile_names_are_shown_as_text() -> None:
    plain, hostile = Outline(html.page(full())), Outline(html.page(poisoned(full())))
    assert "<script>alert(1)</script>" in hostile.text
    for tag in ("script", "style", "img", "iframe", "object", "link"):
        assert [t for t, _ in hostile.tags].count(tag) == [t for t, _ in plain.tags].count(tag)
    handlers = [a for _, attrs in hostile.tags for a in attrs if a.startswith("on")]
    assert handlers == []


@pytest.mark.parametrize("make", [html.page, html.fragment])
def test_nothing_is_loaded_from_anywhere(make: Any) -> None:
    outline = Outline(make(full()))
    links = outline.attributes("src") + outline.attributes("href")
    assert all(link and link.startswith(("data:image/png;base64,", "#")) for link in links)
    assert "url(" not in make(full())
    assert "@import" not in make(full())


def test_every_link_leads_somewhere_and_every_id_is_single() -> None:
    outline = Outline(html.page(replace(full(), anomalies=full().anomalies * 2)))
    ids = outline.attributes("id")
    assert len(ids) == len(set(ids))
    targets = [href[1:] for href in outline.attributes("href") if href]
    assert set(targets) <= set(ids)
    assert set(outline.attributes("aria-labelledby")) <= set(ids)


def test_two_reports_in_one_notebook_do_not_share_anchors() -> None:
    first, second = (Outline(html.fragment(full())) for _ in range(2))
    assert not set(first.attributes("id")) & set(second.attributes("id"))


def test_a_notebook_gets_no_script() -> None:
    assert "script" not in {tag for tag, _ in Outline(html.fragment(full())).tags}


def test_the_page_says_what_the_report_says() -> None:
    text = " ".join(Outline(html.page(full())).text.split())
    anomaly = full().anomalies[0]
    for part in (
        anomaly.finding.headline.replace("`", ""), "t.py:3:5", "forward, step 2", "x.log()", "-inf",
        "underflow", "✓ verified", "✗ failed", "NaN again at step 3", "not tested yet", "a note",
        "encoder", "largest gradient norm", "learning rate", "gradient norm", "weight norm", "2x3",
    ):  # fmt: skip
        assert part in text


def test_experiments_stand_in_a_table() -> None:
    rows = (
        ("as it is", "3", "2.5", "fails: line 3: overflow", False),
        (HOSTILE, "40", "0.1", "survives", True),
    )
    table = html.Experiments(rows=rows, reading=("the updates are too large",))
    drawn, plain = Outline(html.page(full(), table)), Outline(html.page(full()))
    assert "What if" in drawn.text
    assert "What if" not in plain.text
    for words in (*rows[0][:4], HOSTILE, "inferred: the updates are too large"):
        assert words in drawn.text
    assert [t for t, _ in drawn.tags].count("script") == [t for t, _ in plain.tags].count("script")


def test_a_healthy_run_shows_its_health() -> None:
    page = html.page(diagnose(Recording(steps=30, history=layered(30)), script="t.py"))
    outline = Outline(page)
    assert "no harm found in 30 steps" in outline.text
    assert "article" not in {tag for tag, _ in outline.tags}
    assert {f["data-name"] for _, f in outline.tags if "data-name" in f} == {
        "loss",
        "grad_max",
        "lr",
    }


def test_an_origin_that_nobody_saw_is_not_drawn() -> None:
    evidence = recording().evidence[0]
    unknown = replace(evidence.origin, op="unseen", site=None, inputs=(), outputs=())
    unseen = replace(evidence, origin=unknown, origin_kind="unseen", path=(), incomplete="why")
    outline = Outline(html.page(diagnose(Recording(evidence=(unseen,)))))
    stages = [attrs["class"] for _, attrs in outline.tags if "stage " in (attrs.get("class") or "")]
    assert stages == ["stage sink"]
    assert "the operation that made it was not seen" in outline.text


def test_what_was_not_measured_is_not_drawn() -> None:
    rows = (HistoryRow(step=0, lr=0.1), HistoryRow(step=1, lr=0.1))
    assert [chart.name for chart in charts_of(rows, None)] == ["lr"]
    assert heatmaps_of(rows) == []
    page = Outline(html.page(failing(history=())))
    assert "History" not in page.text
    assert "Layers" not in page.text


def test_long_runs_stay_small(tmp_path: Path) -> None:
    rows = layered(20_000)
    wide = layered(400, layers=300)
    path = tmp_path / "report.html"
    html.write(failing(history=(*(replace(r, layers=None) for r in rows), *wide)), path)
    assert path.stat().st_size < 1_500_000
    assert "220 layers that moved less are left out" in path.read_text()


def test_peaks_survive_the_thinning() -> None:
    points = [(step, 1.0) for step in range(20_000)]
    points[12_345] = (12_345, 99.0)
    points[777] = (777, math.nan)
    kept, spread = thinned(points)
    assert len(kept) <= 400
    assert max(high for _, _, high in spread) == 99.0
    assert [step for step, value in kept if math.isnan(value)] == [777]


def test_the_layer_where_it_began_is_named() -> None:
    rows = layered(90)
    gradients, weights = heatmaps_of(rows, "float16")
    assert gradients.began.endswith("in net.1.weight")
    assert weights.began == "no layer grew a hundredfold"
    assert gradients.room.endswith("the limit of float16")


def test_no_line_is_drawn_over_steps_that_nothing_is_known_of() -> None:
    kept = [0, 1, 2, 10, 100, 1_000, 10_000, *range(19_488, 20_000)]
    rows = [HistoryRow(step=step, loss=1.0 + step % 3) for step in kept]
    (chart,) = charts_of(rows, None)
    assert chart.gaps.count("M") == 3
    assert chart.remarks == ("median and range", "dashed where nothing was kept")
    assert chart.band.count("M") == 2
    (whole,) = charts_of(rows[-512:], None)
    assert whole.gaps == ""


def test_a_slow_climb_is_not_called_no_growth() -> None:
    rows = layered(3_000)
    gradients, weights = heatmaps_of(rows)
    assert gradients.began.startswith("net.1.weight climbed slowly, from 1 to 1.3")
    assert gradients.last == 2_999
    assert weights.began == "no layer grew a hundredfold"


def test_steps_are_marked_at_equal_distances() -> None:
    for last in range(1, 200):
        ticks = whole_ticks(0, last)
        assert len({b - a for a, b in pairwise(ticks)}) == 1


def test_the_modules_that_the_chain_passes_through_are_unfolded() -> None:
    outline = Outline(html.page(full()))
    assert [a.get("class") for t, a in outline.tags if t == "li"].count("lit") >= 3
    aside = replace(full().anomalies[0].origin, module="encoder.0.mlp")
    anomaly = full().anomalies[0]
    evidence = replace(anomaly.evidence, path=(aside,))
    page = html.page(replace(full(), anomalies=(replace(anomaly, evidence=evidence),)))
    assert '<li class="on">\n<span class="name">mlp</span>' in page


def test_the_heat_map_can_be_read_as_numbers() -> None:
    rows = [
        HistoryRow(step=s, layers={"a": (g, 1.0), "b": (2.0, 1.0)})
        for s, g in ((10, 0.5), (20, math.nan), (30, math.inf), (40, 8.0))
    ]
    gradients, _ = heatmaps_of(rows)
    assert gradients.table[0] == ("a", "0.5", "8", "NaN", 20)
    assert gradients.table[1] == ("b", "2", "2", "2", 10)


def test_a_nonfinite_layer_began_it() -> None:
    cells: list[list[float | None]] = [[1.0, 1.0, 1.0], [1.0, math.nan, math.nan], [None] * 3]
    assert where_it_began("abc", [5, 6, 7], cells) == "the growth began at step 6 in b"


@given(
    st.lists(
        st.builds(
            HistoryRow,
            step=st.integers(0, 10**9),
            loss=st.none() | st.floats(),
            grad_max=st.none() | st.floats(),
            lr=st.none() | st.floats(min_value=0),
            layers=st.none() | st.dictionaries(st.text(max_size=5), st.tuples(st.floats(), st.floats()), max_size=3),
        ),
        max_size=12,
    )
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_any_history_can_be_drawn(rows: list[HistoryRow]) -> None:
    heatmaps_of(rows)
    for chart in charts_of(rows, 7):
        drawn = [(x, y) for x, y, _, _ in chart.hover] + list(chart.dots)
        assert all(58 <= x <= 396 and 22 <= y <= 126 for x, y in drawn)
        assert not {"n", "i"} & set(chart.line + chart.band)  # of nan and inf


@pytest.mark.parametrize(
    "rows",
    [
        [HistoryRow(step=0, loss=1e308), HistoryRow(step=1, loss=-1e308)],
        [HistoryRow(step=5, loss=math.nan), HistoryRow(step=5, loss=5e-324)],
        [HistoryRow(step=9, lr=0.0, layers={"": (0.0, math.inf)})],
        [HistoryRow(step=2, layers={"a": (-1.0, 5e-324), "b": (math.nan, 1e308)}), HistoryRow(step=1)],
    ],
)  # fmt: skip
def test_odd_histories_make_a_page(rows: list[HistoryRow]) -> None:
    outline = Outline(html.page(failing(history=tuple(rows))))
    assert "The run" in outline.text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "unheard_of"])
@pytest.mark.parametrize(
    "value", [0.0, -1e-300, 1.0, 65504.0, -1e308, math.inf, -math.inf, math.nan]
)
def test_every_value_has_its_place_on_the_scale(value: float, dtype: str) -> None:
    shown = gauge(value, dtype)
    assert shown is not None
    assert 0 <= shown.at <= 160
    ends = {0.0: "zero", math.inf: "inf", -math.inf: "inf"}
    assert shown.kind == ("nan" if math.isnan(value) else ends.get(value, "finite"))


def test_the_histogram_shows_a_single_value_and_the_limit() -> None:
    stats = TensorStats(shape=(1001,), dtype="float32", exponents={-149: 1, 0: 1000})
    bars = bars_of(stats)
    assert bars is not None
    assert len(bars.bars) == 2
    assert min(100 - y for _, y, _, _ in bars.bars) >= 4
    assert [word for _, word in bars.limits] == ["underflow"]
    assert bars_of(replace(stats, exponents=None)) is None


def test_a_file_name_that_is_no_text_can_be_written(tmp_path: Path) -> None:
    html.write(failing(script="tr\udcffin.py"), tmp_path / "r.html")
    assert "tr\\udcffin.py" in (tmp_path / "r.html").read_text()


def test_a_live_report_reads_the_source_itself(tmp_path: Path) -> None:
    script = tmp_path / "t.py"
    script.write_text("import torch\nx = torch.zeros(2)\ny = x.log()  # <b>\n")
    evidence = recording().evidence[0]
    assert evidence.origin.site is not None
    site = replace(evidence.origin.site, file=str(script))
    live = replace(evidence, origin=replace(evidence.origin, site=site), quotes={}, path=())
    text = Outline(html.page(diagnose(Recording(evidence=(live,))))).text
    assert "x = torch.zeros(2)" in text
    assert "# <b>" in text


def test_stats_draw_themselves() -> None:
    stats = TensorStats(shape=(2, 3), dtype="<b>", nan=4, min=0.0, max=1.0, exponents={0: 2})
    text = " ".join(Outline(stats._repr_html_()).text.split())
    assert text.startswith("<b> 2x3 on cpu, in [0, 1], 4 NaN")


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_from_their_ground(dark: bool) -> None:
    css = (html.FOLDER / "page.css").read_text()
    pairs = re.findall(r"--([a-z-]+): light-dark\((#\w{6}), (#\w{6})\)", css)
    colours = {name: (second if dark else first) for name, first, second in pairs}
    grounds = {"red": "red-bg", "amber": "amber-bg", "blue": "blue-bg", "green": "green-bg"}
    for ink in ("ink", "soft", *grounds):
        for ground in ("card", grounds.get(ink, "card")):
            light, deep = sorted((luminance(colours[ink]), luminance(colours[ground])))[::-1]
            assert (light + 0.05) / (deep + 0.05) >= 4.5, (ink, ground)  # WCAG AA


def test_the_rank_stands_with_the_place() -> None:
    result = full()
    first = result.anomalies[0]
    ranked = replace(first.evidence, rank=1, ranks=("rank 0: no harm by step 3",))
    alone, among = (
        html.page(result),
        html.page(replace(result, anomalies=(replace(first, evidence=ranked),))),
    )
    assert "<li>rank 1</li>" in among
    assert "<li>rank" not in alone


def test_the_page_says_with_what_when_and_where_it_ran() -> None:
    run = {"command": "whynan run train.py --lr 10", "started": "2026-01-02 03:04", "host": "node7"}
    page = html.page(replace(full(), run=run))
    shown = page[page.index("The run</h") :]
    assert all(f"<dd>{text}</dd>" in shown for text in run.values())
    assert "<dt>script</dt>" not in shown  # it stands in the command


def test_what_tests_a_change_stands_there_as_it_is_typed() -> None:
    base = failing()
    (anomaly,) = base.anomalies
    untested = replace(anomaly.finding, fixes=(Fix(kind="a", title="clamp it"),))
    faulty = replace(base, anomalies=(replace(anomaly, finding=untested),))
    ran = replace(faulty, run={"command": "whynan run train.py --lr 10"})
    assert "<code>whynan fix train.py --lr 10</code> tries changes" in html.page(ran)
    strange = replace(
        faulty, run={"command": "whynan run $(rm -rf ~)"}
    )  # somebody else's recording
    assert "<code>whynan fix</code> tries changes" in html.page(strange)


def test_one_change_is_recommended_and_the_others_are_folded_away() -> None:
    page = html.page(full())
    first, folded, second, source = (
        page.index(text)
        for text in ("first</p>", '<details class="others">', "second</p>", "Source</h")
    )
    assert first < folded < second < source
    assert "2 other changes, and what came of them" in page


def test_a_change_is_shown_without_the_empty_lines_around_it() -> None:
    patch = "--- a/t.py\n+++ b/t.py\n@@ -1,4 +1,4 @@\n \n-x\n+y\n \n \n"
    fix = Fix(kind="a", title="first", patch=patch, verdict="verified")
    base = failing()
    finding = replace(base.anomalies[0].finding, fixes=(fix,))
    page = html.page(replace(base, anomalies=(replace(base.anomalies[0], finding=finding),)))
    shown = page[page.index('aria-label="change to the source"') :].split("</pre>")[0]
    assert re.findall("<span[^>]*>(.*?)</span>", shown) == ["-x", "+y"]


def test_columns_of_a_heat_map_are_as_wide_as_the_steps_are_apart() -> None:
    steps = [0, 1, 2, 10]
    rows = [HistoryRow(step=s, layers={"a": (1.0 + s, 1.0)}) for s in steps]
    gradients, _ = heatmaps_of(rows, failing=5)
    assert gradients.steps == (0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 10)
    assert gradients.cells == (("1", "2", "3", "3", "3", "3", "3", "3", "3", "3", "11"),)
    assert gradients.fail_percent == round(100 * 5 / 11, 2)


def test_a_histogram_has_an_axis_of_counts() -> None:
    stats = TensorStats(shape=(1113,), dtype="float32", exponents={0: 1000, 3: 100, 5: 13})
    bars = bars_of(stats)
    assert bars is not None
    assert [label for _, label in bars.counts] == ["1", "10", "100", "1,000"]
    tops = [y for _, y, _, _ in bars.bars]
    assert tops[0] == bars.counts[-1][0]  # 1,000 values reach to the mark of 1,000
