"""Values are followed through variables, branches, attributes, modules and classes."""

from __future__ import annotations

import textwrap

from tests.lint.test_patterns import findings


def slugs(text: str) -> list[str]:
    return [f.slug for f in findings(textwrap.dedent(text))]


def test_attributes_set_in_init_are_known_in_methods() -> None:
    text = """
        import torch.nn as nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.act = nn.Softmax(dim=-1)
                self.loss = nn.CrossEntropyLoss()
            def forward(self, x, y):
                return self.loss(self.act(x), y)
    """
    assert slugs(text) == ["ce-softmax"]


def test_attribute_assigned_twice_is_not_trusted() -> None:
    text = """
        import torch.nn as nn
        class Net(nn.Module):
            def __init__(self, probs):
                super().__init__()
                self.act = nn.Softmax(dim=-1)
                if not probs:
                    self.act = nn.Identity()
                self.loss = nn.CrossEntropyLoss()
            def forward(self, x, y):
                return self.loss(self.act(x), y)
    """
    assert slugs(text) == []


def test_model_whose_forward_ends_in_softmax_meets_its_loss() -> None:
    text = """
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
            def forward(self, x):
                return torch.softmax(self.body(x), dim=1)
        model = Net()
        criterion = nn.CrossEntropyLoss()
        def train(batches):
            for x, y in batches:
                out = model(x)
                loss = criterion(out, y)
                loss.backward()
    """
    assert slugs(text) == ["ce-softmax"]


def test_definition_in_one_arm_does_not_reach_behind_the_if() -> None:
    text = """
        import torch
        def f(x, flag):
            if flag:
                x = torch.softmax(x, -1)
            return torch.log(x)
        def g(x, flag):
            if flag:
                x = torch.softmax(x, -1)
                return torch.log(x)
            return x
    """
    assert [f.line for f in findings(textwrap.dedent(text))] == [10]


def test_early_return_leaves_the_other_arm_certain() -> None:
    text = """
        import torch
        def f(x, raw):
            if raw:
                return x
            p = torch.softmax(x, -1)
            return torch.log(p)
    """
    assert slugs(text) == ["log-softmax"]


def test_loop_variables_are_unknown_at_the_top_of_the_next_round() -> None:
    text = """
        import torch
        def f(x, steps):
            for _ in range(steps):
                y = torch.log(x)
                x = torch.softmax(y, -1)
            return x
    """
    assert slugs(text) == []


def test_a_write_into_a_slice_forgets_the_definition() -> None:
    text = """
        import torch
        def f(x, keep):
            p = torch.softmax(x, -1)
            p[~keep] = 1.0
            return torch.log(p)
    """
    assert slugs(text) == []


def test_in_place_methods_count_as_definitions() -> None:
    text = """
        import torch
        def f(x, m):
            n = m.sum()
            n.clamp_(min=1)
            return (x * m).sum() / n
        def g(x):
            x.sigmoid_()
            return torch.log(x)
    """
    assert slugs(text) == ["log-sigmoid"]


def test_loggers_are_not_logarithms() -> None:
    text = """
        import torch
        class Module:
            def training_step(self, x):
                p = torch.softmax(x, -1)
                self.log("p", p)
                wandb.log({"p": p})
                accelerator.log(p)
    """
    assert slugs(text) == []


def test_parameter_named_like_an_import_is_not_the_import() -> None:
    assert (
        slugs("import torch\ndef f(torch, x):\n    return torch.log(torch.softmax(x, -1))\n") == []
    )


def test_gradient_patterns_are_silent_without_gradients() -> None:
    body = "return torch.sqrt((x ** 2).sum(-1))"
    assert slugs(f"import torch\ndef f(x):\n    {body}\n") == ["sqrt-sum-sq"]
    assert slugs(f"import torch\n@torch.no_grad()\ndef f(x):\n    {body}\n") == []
    assert slugs(f"import torch\n@torch.inference_mode()\ndef f(x):\n    {body}\n") == []
    assert slugs(f"import torch\nclass S(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        {body}\n") == []  # fmt: skip


def test_module_constants_and_closures_are_followed() -> None:
    text = """
        import torch
        EPS = 1e-6
        def f(x, m):
            return (x * m_mask).sum() / (m_mask.sum() + EPS)
        def outer(x):
            p = torch.softmax(x, -1)
            def inner():
                return torch.log(p)
            return inner
    """
    assert slugs(text) == ["log-softmax"]


def test_columns_count_characters_not_bytes() -> None:
    (found,) = findings("import torch\nname = 'größe 🙂'; y = torch.log(torch.softmax(x, -1))\n")
    assert (found.line, found.column, found.end_column) == (2, 22, 53)


def test_odd_syntax_is_read_without_failing() -> None:
    text = """
        import torch, numpy as np
        async def f(*args, x: "torch.Tensor" = None, **kw):
            async with a as b, c:
                async for (i, *rest) in d:
                    x[i], self.y, (u, v) = await g(x), 1, (2, 3)
                    x[0] += 1
                    self.z.w -= 2
            match x:
                case [a, b] if a > 0:
                    y = torch.log(a)
                case {"k": v, **r} | str(v):
                    pass
            try:
                pass
            except* ValueError as e:
                del x[0], y
            lam = lambda q, *r, k=1: (yield) or q
            return [*x, {**kw}, f"{x!r:>{10}}", (n := 3), x if y else z, not x, ~x, -x, +x, x[::2, ...]]
        class A(B, metaclass=M):
            x: int
            y: int = 1
            def __init__(self): self.a = self.b = self.c, self.d = 1, 2
            class Inner(A):
                def forward(self): return None
        print(A()(1).log, 1 < 2 < 3, x @ y, x // y, x % y, x << 1, x | y, x ^ y)
    """
    assert isinstance(slugs(text), list)


def test_variables_made_of_variables_twice_over_are_read_in_time() -> None:
    lines = ["import torch", "def f(x):", "    a0 = 2 * x"]
    lines += [f"    a{i} = a{i - 1} * a{i - 1} + a{i - 1} * 3" for i in range(1, 60)]
    text = "\n".join([*lines, "    return torch.log(torch.softmax(a59, -1))", ""])
    assert [f.slug for f in findings(text)] == ["log-softmax"]
