"""The picture that a noisy one and its noise belong to."""


def picture(scheduler, noisy, noise, t):
    kept = scheduler.alphas_cumprod[t].sqrt().view(-1, 1, 1, 1)
    lost = (1 - scheduler.alphas_cumprod[t]).sqrt().view(-1, 1, 1, 1)
    # With a schedule that ends in pure noise nothing of the picture is kept at the last step.
    rest = noisy - lost * noise
    return rest / kept
