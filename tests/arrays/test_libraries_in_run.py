"""`whynan run` on programs that use CuPy (a stand-in), JAX, SciPy's statistics or pandas' division."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.arrays.test_numpy_in_run import bare, line_of, run
from tests.harness import ForkServer

SITE = Path(__file__).parent / "site-packages"
STAND_IN = f"import sys; sys.path.insert(0, {str(SITE)!r})\n"

# Each line that makes the first bad value ends with `# HERE`.
HARMFUL: dict[str, tuple[str, str, str]] = {
    "cupy: a reciprocal": ("division_by_zero", "observed", """
        import cupy as cp
        per_bin = cp.array([4.0, 1.0, 0.0, 8.0], dtype=cp.float32)
        weight = cp.divide(1.0, per_bin)  # HERE
        print(f"weights: {weight}")
        print(f"NaN: {cp.isnan(weight).sum()}, inf: {cp.isinf(weight).sum()}")
    """),
    "cupy: a root": ("sqrt_negative", "observed", """
        import cupy as cp
        variance = cp.array([-1.0, 16.0, 25.0], dtype=cp.float32)
        spread = cp.sqrt(variance)  # HERE
        print("spread", cp.asnumpy(spread))
    """),
    "cupy: an overflow of an operator": ("overflow", "observed", """
        import cupy as cp
        force = cp.array([2e38, 3e38], dtype=cp.float32)
        power = force * force  # HERE
        print(f"power: {power.get()}")
    """),
    "cupy: in place": ("division_by_zero", "observed", """
        import cupy as cp
        share = cp.array([1.0, 2.0])
        share /= cp.array([0.0, 1.0])  # HERE
        print(share)
    """),
    "cupy: over its own operand": ("log_nonpositive", "observed", """
        import cupy as cp
        x = cp.zeros(2)
        cp.log(x, out=x)  # HERE
        print(x)
    """),
    "cupy: NumPy's function on a card's array": ("log_nonpositive", "output", """
        import cupy as cp
        import numpy as np
        score = np.log(cp.zeros(2))  # HERE
    """),
    "cupy: saved": ("division_by_zero", "observed", """
        import io
        import cupy as cp
        rate = 1.0 / cp.zeros(2)  # HERE
        cp.save(io.BytesIO(), rate)
    """),
    "cupy: a helper's logarithm": ("log_nonpositive", "observed", """
        import cupy as cp
        def entropy(p):
            return -(p * cp.log(p)).sum()  # HERE
        print("entropy", float(entropy(cp.array([1.0, 0.0]))))
    """),
    "jax: eager": ("division_by_zero", "observed", """
        import jax.numpy as jnp
        def rate(n):
            return 1.0 / n  # HERE
        print("rate", rate(jnp.array([3.0, 0.0])))
    """),
    "jax: inside jit": ("log_nonpositive", "observed", """
        import jax
        import jax.numpy as jnp
        @jax.jit
        def loss(logits, target):
            p = jax.nn.softmax(logits)
            return -(target * jnp.log(p)).sum()  # HERE
        value = loss(jnp.array([500.0, 0.0]), jnp.array([1.0, 0.0]))
        print(f"loss {value}")
    """),
    "jax: a gradient inside jit": ("gradient_singularity", "observed", """
        import jax
        import jax.numpy as jnp
        def distance(a, b):
            return jnp.linalg.norm(a - b)  # HERE
        @jax.jit
        def step(a, b):
            return a - 0.1 * jax.grad(distance)(a, b)
        a = jnp.ones(3)
        for _ in range(3):
            a = step(a, jnp.ones(3))
        print(a)
    """),
    "jax: a value beside its gradient": ("gradient_singularity", "observed", """
        import jax
        import jax.numpy as jnp
        def loss(x):
            y = x * 2.0
            return jnp.sqrt(y).sum()  # HERE
        value, slope = jax.value_and_grad(loss)(jnp.array([0.0, 1.0]))
        print(slope)
    """),
    "jax: a turn of a scan": ("overflow", "observed", """
        import jax
        import jax.numpy as jnp
        def body(x, _):
            x = x * x  # HERE
            return x, x.sum()
        last, sums = jax.lax.scan(body, jnp.array([2.0, 3.0]), None, length=10)
        print(sums)
    """),
    "jax: a turn of a while": ("division_by_zero", "observed", """
        import jax
        import jax.numpy as jnp
        def turn(state):
            i, x = state
            return i + 1, x / (3 - i)  # HERE
        print(jax.lax.while_loop(lambda s: s[0] < 5, turn, (0, jnp.array(1.0)))[1])
    """),
    "jax: under vmap": ("log_nonpositive", "output", """
        import jax
        import jax.numpy as jnp
        def score(row):
            return jnp.log(row).sum()  # HERE
        scores = jax.vmap(score)(jnp.array([[1.0, 2.0], [1.0, -1.0]]))
    """),
    "jax: a singular matrix": ("singular_matrix", "observed", """
        import jax
        import jax.numpy as jnp
        @jax.jit
        def solve(a, b):
            return jnp.linalg.solve(a, b)  # HERE
        print(solve(jnp.array([[1.0, 2.0], [2.0, 4.0]]), jnp.ones(2)))
    """),
    "jax: a method under jit": ("division_by_zero", "observed", """
        from functools import partial
        import jax
        import jax.numpy as jnp
        class Net:
            @partial(jax.jit, static_argnums=0)
            def apply(self, w, x):
                h = x @ w
                return h / jnp.linalg.norm(h)  # HERE
        print(Net().apply(jnp.zeros((2, 2)), jnp.ones(2)))
    """),
    "scipy: the scores of a constant": ("opaque", "observed", """
        import numpy as np
        from scipy import stats
        height = np.full(4, 1.5)
        score = stats.zscore(height)  # HERE
        print(score)
    """),
    "pandas: a ratio of columns": ("division_by_zero", "observed", """
        import pandas as pd
        table = pd.DataFrame({"cost": [1.0, 2.0], "units": [1, 0]})
        table["each"] = table["cost"] / table["units"]  # HERE
        print(table)
    """),
    "numpy: a logarithm inside a helper": ("log_nonpositive", "observed", """
        import numpy as np
        def log_of(v):
            return np.log(v)  # HERE
        p = np.array([0.5, 0.0])
        x = log_of(p) * p
        print(x)
    """),
    "numpy: into another array": ("division_by_zero", "observed", """
        import numpy as np
        ratio = np.empty(2)
        np.divide(np.array([1.0, 2.0]), np.array([0.0, 1.0]), out=ratio)  # HERE
        print(ratio)
    """),
    "numpy: into its own operand": ("log_nonpositive", "observed", """
        import numpy as np
        x = np.array([0.0, 1.0])
        np.log(x, out=x)  # HERE
        print(x)
    """),
    "numpy: a correlation with a constant": ("division_by_zero", "observed", """
        import numpy as np
        rows = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]])
        c = np.corrcoef(rows)  # HERE
        print(c)
    """),
}  # fmt: skip
HEALTHY: dict[str, str] = {
    "cupy: chosen and replaced": """
        import cupy as cp
        x = cp.array([0.0, 1.0])
        y = cp.where(x > 0, cp.log(x), 0.0)
        z = cp.nan_to_num(1.0 / x, posinf=0.0)
        best = cp.full(2, -cp.inf)
        print(y, z, cp.maximum(best, x), cp.array([cp.nan, 1.0]), isinstance(cp.log, cp.ufunc), cp.log)
    """,
    "cupy: it refuses what it refused": """
        import cupy as cp
        import numpy as np
        try:
            np.asarray(cp.zeros(2))
        except TypeError as error:
            print(error)
    """,
    "jax: masks, and what absorbs them": """
        import jax
        import jax.numpy as jnp
        scores, mask = jnp.array([1.0, 2.0, 3.0]), jnp.array([True, False, True])
        masked = jnp.where(mask, scores, -jnp.inf)
        print(jax.nn.softmax(masked), jax.nn.softmax(scores + jnp.log(mask.astype(jnp.float32))))
        best = jnp.maximum(jnp.full(3, -jnp.inf), scores)
        gone = jnp.nan_to_num(1.0 / jnp.array([0.0, 1.0]), posinf=0.0)
        print(best, gone, jax.jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0))(jnp.array([0.0, 1.0])))
    """,
    "jax: data that was bad": """
        import jax
        import jax.numpy as jnp
        x = jnp.array([1.0, jnp.nan])
        print(x * 2, jax.jit(jnp.log)(x), jax.grad(lambda v: (v * v).sum())(x))
    """,
    "jax: everything a program may ask of a function": """
        import functools
        import inspect
        import jax
        import jax.numpy as jnp
        print(isinstance(jnp.add, jnp.ufunc), jnp.add.reduce(jnp.arange(4)), jnp.log.__name__, jnp.sum.__name__)
        print(inspect.signature(jnp.log), inspect.isfunction(jnp.sum), inspect.isfunction(jnp.log))
        @functools.partial(jax.jit, static_argnames=("n",), donate_argnums=(0,))
        def repeated(x, n):
            print("traced")
            return sum(x for _ in range(n))
        print(repeated(jnp.ones(3), n=3), repeated(jnp.ones(3), n=3), repeated._cache_size())
        print(jax.make_jaxpr(jnp.log)(1.0), jax.vmap(jnp.dot)(jnp.ones((2, 3)), jnp.ones((2, 3))))
        @jax.custom_vjp
        def twice(x):
            return x * 2
        twice.defvjp(lambda x: (x * 2, None), lambda kept, g: (g * 2,))
        print(jax.grad(twice)(3.0), jax.tree.map(jnp.add, [1, 2], [3, 4]))
        print(isinstance(jax.nn.relu, jax.custom_jvp), jnp.zeros(2, dtype=jnp.float64).dtype)
        try:
            undefined = jnp.ones(3) @ jnp.ones(4)
        except TypeError as error:
            print(str(error)[:20])
    """,
    "scipy: an infinite ratio, and missing data": """
        import numpy as np
        from scipy import stats
        print(stats.fisher_exact([[3, 0], [0, 3]]), stats.zscore(np.array([1.0, np.nan, 2.0])))
    """,
    "pandas: gaps, and ratios that are cleaned": """
        import numpy as np
        import pandas as pd
        a, b = pd.Series([0.0, 1.0, None]), pd.Series([0.0, 2.0, 1.0])
        print(a / b)
        print((b / a).replace(np.inf, 0.0).fillna(0.0))
    """,
}  # fmt: skip


@pytest.mark.parametrize("name", HARMFUL)
def test_the_line_is_named_and_the_program_undisturbed(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    mechanism, sink, text = HARMFUL[name]
    result, script = run(programs, tmp_path, _begun(name, text), mode="auto")
    assert result.code == 3, result.stderr
    assert result.report is not None
    (anomaly,) = result.report["anomalies"]
    assert (anomaly["location"]["line"], anomaly["mechanism"]) == (line_of(script), mechanism)
    assert anomaly["sink"] == sink
    assert "torch" not in " ".join(f["title"] for f in anomaly["fixes"])
    plain = programs.run(script, traced=False)
    assert (result.stdout, plain.code) == (plain.stdout, 0)
    assert bare(result, script).startswith(bare(plain, script))


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_no_harm_stays_as_it_is(programs: ForkServer, tmp_path: Path, name: str) -> None:
    result, script = run(programs, tmp_path, _begun(name, HEALTHY[name]), mode="auto")
    plain = programs.run(script, traced=False)
    assert (result.code, result.stdout) == (plain.code, plain.stdout)
    assert bare(result, script) == bare(plain, script)


def test_several_faults_are_all_named(programs: ForkServer, tmp_path: Path) -> None:
    text = (
        STAND_IN
        + """\
import numpy as np
import cupy as cp
import jax.numpy as jnp
a = 1 / np.array([0.0, 3.0])
print("a", a)
b = cp.sqrt(cp.array([-1.0]))
print("b", b)
c = jnp.exp(jnp.array([1000.0]))
print("c", c)
"""
    )
    result, _ = run(programs, tmp_path, text, mode="auto")
    assert result.report is not None
    found = [(a["location"]["line"], a["mechanism"]) for a in result.report["anomalies"]]
    assert found == [(5, "division_by_zero"), (7, "sqrt_negative"), (9, "overflow")]


def test_what_jax_has_compiled_with_effects_is_named_by_its_call(
    programs: ForkServer, tmp_path: Path
) -> None:
    text = """
    import jax
    import jax.numpy as jnp
    @jax.jit
    def loss(x):
        jax.debug.print("once")
        return jnp.log(x).sum()
    value = loss(jnp.zeros(2))  # HERE
    print(value)
    """
    result, script = run(programs, tmp_path, text, mode="auto")
    assert result.report is not None
    (anomaly,) = result.report["anomalies"]
    assert anomaly["location"]["line"] == line_of(script)
    assert result.stdout.count("once") == 1
    assert "which JAX has compiled" in " ".join(result.stderr.split())


def test_a_fix_is_written_for_the_library(tmp_path: Path) -> None:
    from whynan.diagnosis.array_fixes import array_fixes

    titles = [fix.title for fix in array_fixes("log_nonpositive", "array.log.jax")]
    assert titles == [
        "keep the argument above 0: `jnp.log(jnp.maximum(x, 1e-12))`, or `jnp.log1p(x)` for counts"
    ]


def _begun(name: str, text: str) -> str:
    from textwrap import dedent

    return (STAND_IN if name.startswith("cupy") else "") + dedent(text).lstrip()
