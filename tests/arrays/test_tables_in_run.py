"""`whynan run` where NumPy's value is only seen in a table of pandas."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.arrays.test_numpy_in_run import bare, line_of, run
from tests.harness import ForkServer

HARMFUL: dict[str, tuple[str, str, str]] = {
    "a printed column": ("log_nonpositive", "the printed value of `trips`", """
        import numpy as np, pandas as pd
        trips = pd.DataFrame({"km": [3.0, -2.0, 5.0], "toll": [1.0, np.nan, np.nan]})
        trips["log_km"] = np.log(trips["km"])  # HERE
        print(trips)
    """),
    "a column that had gaps": ("sqrt_negative", "the printed value of `t`", """
        import numpy as np, pandas as pd
        t = pd.DataFrame({"v": [np.nan, -1.0, 4.0]})
        t["s"] = np.sqrt(t["v"])  # HERE
        print(t.describe(), t)
    """),
    "a series, described": ("division_by_zero", "the printed value of `pace`", """
        import numpy as np, pandas as pd
        speed = np.array([1.0, 0.0, 4.0])
        pace = pd.Series(1 / speed)  # HERE
        print(pace.describe(percentiles=[]))
    """),
    "written in a function": ("division_by_zero", "the written copy of `frame`", """
        import numpy as np, pandas as pd
        def export(path):
            frame = pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 4.0]})
            frame["rate"] = frame["a"].to_numpy() / frame["b"].to_numpy()  # HERE
            frame.to_csv(path, index=False)
        export("rates.csv")
    """),
    "a whole table": ("log_nonpositive", "the written copy of `logs`", """
        import numpy as np, pandas as pd
        counts = np.array([[1.0, -3.0], [2.0, 5.0], [-1.0, 7.0]])
        logs = pd.DataFrame(np.log(counts), columns=["a", "b"])  # HERE
        logs.to_json(path_or_buf="logs.json")
    """),
}  # fmt: skip
HEALTHY = {
    "gaps beside a column that was filled": """
        import numpy as np, pandas as pd
        t = pd.DataFrame({"x": [1.0, -2.0, 3.0], "z": [1.0, np.nan, 2.0]})
        t["y"] = np.log(t["x"])
        t["y"] = t["y"].fillna(0.0)
        print(t)
        t.to_csv("t.csv")
    """,
    "as many gaps in another column": """
        import numpy as np, pandas as pd
        x = np.array([1.0, -2.0, 3.0])
        t = pd.DataFrame({"y": np.log(x), "z": [np.nan, 1.0, 2.0]})
        t["y"] = t["y"].fillna(0.0)
        print(t)
    """,
    "infinities made missing and dropped": """
        import numpy as np, pandas as pd
        t = pd.DataFrame({"x": [1.0, 0.0, 3.0], "z": [1.0, np.nan, 2.0]})
        y = np.log(t["x"])
        y = y.replace([np.inf, -np.inf], np.nan)
        print(y, t, t.isna().sum())
        y.to_csv("y.csv")
    """,
    "rows left out": """
        import numpy as np, pandas as pd
        t = pd.DataFrame({"x": [1.0, -2.0, 3.0], "z": [1.0, 2.0, np.nan]})
        logs = pd.DataFrame({"y": np.log(t["x"]), "z": t["z"]})
        logs = logs[logs["y"].notna()]
        print(logs)
    """,
    "a spread of one value, pandas' own NaN": """
        import numpy as np, pandas as pd
        t = pd.DataFrame({"g": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]})
        r = np.nan_to_num(np.ones(3) / np.zeros(3))
        print(t.groupby("g")["x"].std(), r, t.corrwith(t["x"], numeric_only=True))
    """,
    "a table turned into text": """
        import numpy as np, pandas as pd
        t = pd.DataFrame({"x": [1.0, 0.0]})
        t["y"] = np.log(t["x"])
        size = len(t.to_csv(sep=";"))
        t["y"] = t["y"].clip(lower=-9.0)
        print(size, t)
    """,
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_bad_value_in_a_table_is_traced_to_its_line(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    mechanism, subject, text = HARMFUL[name]
    result, script = run(programs, tmp_path, text, mode="auto")
    assert (result.code, result.report is not None) == (3, True)
    assert result.report is not None
    (anomaly,) = result.report["anomalies"]
    assert (anomaly["location"]["line"], anomaly["mechanism"]) == (line_of(script), mechanism)
    assert subject in " ".join(result.stderr.split())


@pytest.mark.parametrize("name", HEALTHY)
def test_missing_values_are_no_harm(programs: ForkServer, tmp_path: Path, name: str) -> None:
    result, script = run(programs, tmp_path, HEALTHY[name], mode="auto")
    plain = programs.run(script, traced=False)
    assert (result.code, result.stdout) == (0, plain.stdout)
    assert bare(result, script) == bare(plain, script)
