"""The plugin as a user has it: installed, found through its entry point, in a run of its own."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

import whynan

pytest_plugins = ("pytester",)
SOURCE = Path(whynan.__file__).parent.parent
PROJECT = Path(__file__).parents[2] / "pyproject.toml"

LOSSES = """
    import torch

    def entropy(p):
        return -(p * torch.log(p)).sum()
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder whose Python has this whynan installed."""
    plugins = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]["pytest11"]
    installed = pytester.mkdir("installed") / "whynan-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: whynan\nVersion: 0\n")
    lines = "".join(f"{name} = {module}\n" for name, module in plugins.items())
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{lines}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed.parent), str(SOURCE)]))
    monkeypatch.setenv("COLUMNS", "160")
    pytester.makepyfile(losses=LOSSES)
    return pytester


def test_without_the_flag_nothing_is_imported(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(
        """
        import sys

        def test_modules():
            ours = {n for n in sys.modules if n.split(".")[0] in ("whynan", "torch", "numpy")}
            assert ours == {
                "whynan", "whynan.version", "whynan.adapters", "whynan.adapters.pytest_plugin",
            }
        """
    )
    # Plugins of other libraries import what they like.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = project.runpytest_subprocess("--strict-markers", "-p", "whynan.adapters.pytest_plugin")
    result.assert_outcomes(passed=1)


def test_a_harm_fails_a_test_that_would_pass(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest, torch
        from losses import entropy

        def test_leaves_a_nan():
            entropy(torch.tensor([0.0, 1.0], requires_grad=True)).backward()

        def test_healthy():
            assert entropy(torch.ones(2) / 2).item() > 0.69

        def test_absorbs_an_infinity():
            scores = torch.tensor([[1.0, float("-inf")]])
            assert scores.softmax(-1).tolist() == [[1.0, 0.0]]

        def test_says_itself_what_it_expects():
            with pytest.raises(ValueError, match="constraint"):
                torch.distributions.Normal(torch.zeros(1) / 0, 1.0, validate_args=True)

        def test_backward():
            x = torch.zeros(3, requires_grad=True)
            x.sqrt().sum().backward()

        @pytest.mark.whynan(False)
        def test_left_out():
            entropy(torch.tensor([0.0, 1.0], requires_grad=True)).backward()

        @pytest.mark.xfail(strict=True)
        def test_known_to_fail():
            entropy(torch.tensor([0.0, 1.0], requires_grad=True)).backward()

        @pytest.fixture
        def weights():
            return 1 / torch.tensor([2.0, 0.0])

        def test_uses_a_fixture(weights):
            (weights * torch.ones(2, requires_grad=True)).sum().backward()

        def test_fails_by_itself():
            assert entropy(torch.tensor([0.0, 1.0])).item() == 0
        """
    )
    result = project.runpytest_subprocess("--whynan", "-v", "-rA", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, failed=4, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "FAILED *::test_leaves_a_nan - Failed: error[[]N*",
            "FAILED *::test_backward - *gradient*",
            "FAILED *::test_uses_a_fixture - *",
            "FAILED *::test_fails_by_itself - *",
        ]
    )
    text = result.stdout.str()
    assert "--> losses.py:4:" in text
    assert "1 / torch.tensor([2.0, 0.0])" in text  # the fixture's own line
    assert "Captured whynan call" in text  # beside the assertion that failed by itself


def test_marker_and_fixture_need_no_flag(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest, torch
        from losses import entropy
        from whynan import assert_finite
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        BAD = torch.tensor([0.0, 1.0])

        @pytest.mark.whynan
        def test_marked():
            entropy(BAD.clone().requires_grad_()).backward()

        def test_unmarked():
            assert _get_current_dispatch_mode() is None
            entropy(BAD.clone().requires_grad_()).backward()

        def test_is_about_the_harm(whynan_trace):
            whynan_trace.expect("log_nonpositive")
            entropy(BAD.clone().requires_grad_()).backward()

        def test_harm_stays_away(whynan_trace):
            whynan_trace.expect("log_nonpositive")
            entropy(torch.ones(2)).item()

        @pytest.mark.whynan
        def test_asserts():
            assert_finite({"p": BAD, "log": torch.log(BAD)})

        @pytest.mark.whynan
        class TestUnit(__import__("unittest").TestCase):
            def test_method(self):
                entropy(BAD.clone().requires_grad_()).backward()
        """
    )
    result = project.runpytest_subprocess("--strict-markers", "-rA")
    result.assert_outcomes(passed=2, failed=4)
    result.stdout.fnmatch_lines_random(
        [
            "FAILED *::test_marked - Failed: error[[]N*",
            "FAILED *::test_harm_stays_away - Failed: expected harm by log_nonpositive*",
            "FAILED *::test_asserts - whynan.errors.CheckFailed: 1 of 2 arrays are bad*",
            "FAILED *::TestUnit::test_method - *",
        ]
    )
    text = result.stdout.str()
    assert "log: 2 float32  in [0, 0]  mean 0, std 0  | 1 -inf (first at [0])" in text
    assert "torch.log(BAD)" in text.split("Captured whynan call")[1]  # its origin


def test_a_run_leaves_nothing_behind(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest, torch
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        @pytest.fixture
        def broken():
            raise KeyError("mine")

        def test_setup_fails(broken): ...
        def test_skips(): pytest.skip("not today")
        def test_raises(): raise KeyError("mine")

        @pytest.mark.whynan(False)
        def test_left_as_found():
            assert _get_current_dispatch_mode() is None
            assert torch.Tensor.__repr__.__module__ == "torch._tensor"
            assert "__wrapped__" not in vars(torch.save)
        """
    )
    result = project.runpytest_subprocess("--whynan")
    result.assert_outcomes(passed=1, failed=1, errors=1, skipped=1)
    result = project.runpytest_subprocess("--whynan", "--setup-only")
    assert "Error" not in result.stderr.str()


OLD = "torch 2.4.1 cannot be watched: whynan works with "


def test_a_torch_that_cannot_be_watched_is_a_wrong_use(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.mkpydir("torch").joinpath("__init__.py").write_text("__version__ = '2.4.1'")
    paths = os.environ["PYTHONPATH"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(project.path), paths]))
    project.makepyfile(
        """
        import pytest

        @pytest.mark.whynan
        def test_marked(): ...
        """
    )
    refused = project.runpytest_subprocess("--whynan")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([f"ERROR: --whynan: {OLD}*"])
    marked = project.runpytest_subprocess()
    marked.assert_outcomes(errors=1)
    marked.stdout.fnmatch_lines([f"{OLD}*"])
