"""`pytest --whynan`: a test in which a non-finite value does harm fails, with the report.

Loaded by every pytest run of an environment that has whynan, so nothing of torch or of whynan's
own machinery is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from whynan.model import Diagnosis
    from whynan.watching.watch import Watch

MARKER = (
    "whynan(watched=True): fail this test when a non-finite value does harm in it; "
    "whynan(False) leaves it out of --whynan"
)


class TracedTest:
    """The recording of one test, its fixtures included."""

    def __init__(self) -> None:
        from whynan.run.blocks import traced

        self._block: Watch = traced()
        self._block.recorder.losses.keeps = True
        self._expected: str | None = None

    @property
    def diagnosis(self) -> Diagnosis:
        """What was found so far."""
        from whynan.diagnosis.engine import diagnose
        from whynan.repair.first import FirstChanges

        return diagnose(FirstChanges().beside(self._block.recording()))

    def expect(self, mechanism: str) -> None:
        """This test is about that harm: it fails when the harm stays away, or is another one."""
        self._expected = mechanism

    def start(self) -> None:
        self._block.start()

    def stop(self, error: BaseException | None) -> None:
        self._block.stop(error)

    def complaint(self) -> str | None:
        """Why the test has failed, if it has."""
        found = self.diagnosis
        mechanisms = [a.finding.mechanism for a in found.anomalies]
        if self._expected is None:
            return str(found) if mechanisms else None
        if self._expected in mechanisms:
            return None
        return f"expected harm by {self._expected}, and this was found:\n{found}"


_trace = pytest.StashKey[TracedTest]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("whynan").addoption(
        "--whynan", action="store_true",
        help="fail every test in which a NaN or infinity does harm, and say where it began",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if config.getoption("--whynan"):
        why = _refusal()
        if why is not None:
            raise pytest.UsageError(f"--whynan: {why}")


def _refusal() -> str | None:
    """Why there is no torch to be watched."""
    from whynan.errors import UsageError
    from whynan.seam.supported import need_torch

    try:
        need_torch()
    except UsageError as error:
        return str(error)
    return None


def _is_watched(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("whynan")
    if marker is not None:
        return bool(marker.args[0] if marker.args else marker.kwargs.get("watched", True))
    asks = "whynan_trace" in getattr(item, "fixturenames", ())
    return asks or bool(item.config.getoption("--whynan"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Fixtures are part of the test: a NaN made in one is named there."""
    if not _is_watched(item):
        return (yield)
    why = _refusal()
    if why is not None:
        yield  # what other plugins do here, they undo later
        pytest.fail(why, pytrace=False)
    trace = item.stash[_trace] = TracedTest()
    trace.start()
    try:
        return (yield)
    except BaseException as error:
        _finish(item, error, "setup")
        raise


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    try:
        result = yield
    except BaseException as error:
        _finish(item, error, "call")
        raise
    complaint = _finish(item, None, "call")
    if complaint is not None:
        pytest.fail(complaint, pytrace=False)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    _finish(item, None, "teardown")  # still running only if the call was left out: --setup-only


def _finish(item: pytest.Item, error: BaseException | None, when: str) -> str | None:
    """End the recording; beside a failure of the test's own, the report is a section."""
    trace = item.stash.get(_trace, None)
    if trace is None:
        return None
    del item.stash[_trace]
    trace.stop(error)
    if error is not None and trace.diagnosis.anomalies:
        item.add_report_section(when, "whynan", str(trace.diagnosis))
    return trace.complaint()


@pytest.fixture
def whynan_trace(request: pytest.FixtureRequest) -> TracedTest:
    """The recording of this test: `diagnosis` so far, and `expect(mechanism)`."""
    trace: TracedTest | None = request.node.stash.get(_trace, None)
    if trace is None:
        pytest.fail("whynan_trace is of no use in a test marked whynan(False)", pytrace=False)
    return trace
