"""Makes the pictures of the README from a real run: `python docs/screenshots.py`.

Needs Chromium and the `dev` extra (Pillow comes with TensorBoard).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"


def make_page(folder: Path) -> Path:
    """Run the example until it fails, and find a change for it."""
    page = folder / "report.html"
    whynan = [sys.executable, "-m", "whynan", "run", "--fix", "--html", page]
    if subprocess.run([*whynan, "examples/distill.py"], cwd=ROOT).returncode != 3:
        sys.exit("the example did not fail as it should")
    return page


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_path = make_page(Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            view = {"width": 1120, "height": 900}
            page = browser.new_page(viewport=view, color_scheme=scheme)
            page.goto(page_path.as_uri())
            path = IMAGES / f"report-{scheme}.png"
            page.screenshot(path=path)
            Image.open(path).quantize(64).save(path, optimize=True)  # a third of the size
        browser.close()


if __name__ == "__main__":
    main()
