"""A model with a hidden class is traced, scripted, compiled and counted by the user's own modes."""
import warnings

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 12)
        self.head = nn.Linear(12, 3)
        self.register_buffer("hidden", torch.tensor([0.0, 0.0, float("-inf")]))

    def forward(self, x):
        return torch.log_softmax(self.head(torch.relu(self.body(x))) + self.hidden, dim=-1)


class Functions(TorchFunctionMode):
    seen = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        Functions.seen += 1
        return function(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    seen = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        Operations.seen += 1
        return operation(*args, **(kwargs or {}))


torch.manual_seed(4)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    x = torch.randn(8, 6)
    with Operations(), Functions():
        loss = -model(x)[:, :2].gather(1, (x[:, :1] > 0).long()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("counted:", Functions.seen, Operations.seen)

model.eval()
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    traced, scripted = torch.jit.trace(model, x), torch.jit.script(model)
with torch.no_grad():
    graph = make_fx(model)(x)
    print(graph.code)
    print([str(node.kind()) for node in traced.graph.nodes()])
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    results = [f(x).exp() for f in (model, traced, scripted, graph, compiled)]
print([torch.allclose(result, results[0]) for result in results])
