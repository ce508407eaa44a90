"""The site is whole: no dead link, every rule and every public name on it, no misspelt word."""

from __future__ import annotations

import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import whynan
from tests.docs.pages import ROOT
from whynan.explain.rule_pages import rule_pages

WORDS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "examples", ".github")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_every_rule_has_a_page_and_the_index_leads_there(site: Path) -> None:
    index = (site / "rules" / "index.html").read_text(encoding="utf-8")
    for name in set(rule_pages()) - {"README.md"}:
        stem = Path(name).stem
        assert (site / "rules" / stem / "index.html").is_file()
        assert f'href="{stem}/"' in index


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = (site / "api" / "index.html").read_text(encoding="utf-8")
    public = [name for name in whynan.__all__ if name != "__version__"]
    assert [name for name in public if f'id="whynan.{name}"' not in page] == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    assert (
        re.findall(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="https?:', page) == []
    )


def test_links_of_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)|(?:src|srcset)="([^":]+)"', text)
    assert targets
    assert [t for t in (a or b for a, b in targets) if not (ROOT / t).exists()] == []


def test_pydoc_shows_public_names_only() -> None:
    text = pydoc.plain(pydoc.render_doc(whynan))
    shown = re.findall(
        r"^    class (\w+)|^    (\w+)(?: = \w+)?\(", text.partition("\nCLASSES")[2], re.MULTILINE
    )
    assert {a or b for a, b in shown} == set(whynan.__all__) - {"__version__"}


def test_words_are_spelt_right() -> None:
    given = [name for name in WORDS if (ROOT / name).exists()]
    command = [sys.executable, "-m", "codespell_lib", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == ""
