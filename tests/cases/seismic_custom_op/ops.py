import numpy as np
import torch


@torch.library.custom_op("seismo::envelope", mutates_args=())
def envelope(trace: torch.Tensor) -> torch.Tensor:
    """Amplitude envelope of each trace, relative to its peak."""
    x = trace.detach().numpy()
    n = x.shape[-1]
    spectrum = np.fft.fft(x, axis=-1)
    h = np.zeros(n)
    h[0] = 1
    h[1:(n + 1) // 2] = 2
    if n % 2 == 0:
        h[n // 2] = 1
    env = np.abs(np.fft.ifft(spectrum * h, axis=-1))
    with np.errstate(all="ignore"):
        env = env / env.max(axis=-1, keepdims=True)
    return torch.from_numpy(env.astype(np.float32))


@envelope.register_fake
def _(trace):
    return torch.empty_like(trace)
