"""Every error that whynan raises on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.checking.verdicts import Check
    from whynan.model import Diagnosis


class WhynanError(Exception):
    """Base of all whynan errors; `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(WhynanError):
    """The command was called in a way that cannot work."""

    exit_code = 2


class AnomalyFound(WhynanError):
    """A non-finite value did harm. Carries the `diagnosis`."""

    exit_code = 3

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(str(diagnosis))
        self.diagnosis = diagnosis
        self._is_drawn = False

    def _render_traceback_(self) -> list[str]:
        """IPython asks for this: the report, and no frames of ours."""
        from whynan.report.embedded import in_notebook

        is_drawn, self._is_drawn = self._is_drawn, True  # it asks more than once
        return in_notebook(self.diagnosis, is_drawn=is_drawn)


class CheckFailed(WhynanError, AssertionError):
    """A value is not what it should be. Carries the `check`; an AssertionError, so tests fail."""

    exit_code = 3

    def __init__(self, check: Check) -> None:
        super().__init__(check.complaint())
        self.check = check


class StopRun(BaseException):
    """Leaves the user's program; a BaseException so that `except Exception` lets it pass."""
