"""Schedulers that make a NaN or an infinity at the edge of their tables and cut it off."""

import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    KDPM2DiscreteScheduler,
    UNet2DModel,
)

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 8), layers_per_block=1,
    norm_num_groups=4, down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2,
).eval()  # fmt: skip
for make in (DDIMScheduler, DPMSolverMultistepScheduler, EulerDiscreteScheduler, KDPM2DiscreteScheduler):
    scheduler = make()
    scheduler.set_timesteps(3)
    sample = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    sample = sample * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        with torch.no_grad():
            guess = unet(scheduler.scale_model_input(sample, t), t).sample
        sample = scheduler.step(guess, t, sample).prev_sample
    print(make.__name__, round(sample.std().item(), 2))
