"""Hamiltonian steps that are far too long: every divergent proposal is rejected."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import HMC, MCMC

pyro.set_rng_seed(1)


def funnel():
    v = pyro.sample("v", dist.Normal(0.0, 3.0))
    pyro.sample("x", dist.Normal(0.0, torch.exp(v * 6)).expand([3]).to_event(1), obs=torch.ones(3) / 9)


run = MCMC(
    HMC(funnel, step_size=1.2, num_steps=3, adapt_step_size=False),
    num_samples=8, warmup_steps=2, disable_progbar=True,
)  # fmt: skip
run.run()
print(round(run.get_samples()["v"].mean().item(), 3))
