"""Waiting times under a gamma distribution; one of them is 0."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam

pyro.set_rng_seed(0)
waits = torch.distributions.Gamma(2.0, 1.0).sample((40,))
waits[11] = 0.0


def model(seen):
    shape = pyro.sample("shape", dist.LogNormal(0.0, 0.5))
    rate = pyro.sample("rate", dist.LogNormal(0.0, 0.5))
    with pyro.plate("rows", len(seen)):
        pyro.sample("wait", dist.Gamma(shape, rate), obs=seen)


guide = AutoNormal(model)
inference = SVI(model, guide, Adam({"lr": 0.02}), Trace_ELBO())
# The logarithm is taken inside of the library, below this call.
losses = []
for _ in range(5):
    loss = inference.step(waits)
    losses.append(loss)
print(losses[-1])
