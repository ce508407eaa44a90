"""Rigid 1-D registration of two noisy scan lines by maximising mutual information."""
import torch


def soft_histogram(values, centres):
    width = centres[1] - centres[0]
    w = torch.relu(1.0 - (values[:, None] - centres[None, :]).abs() / width)
    return w


def entropy(p):
    log_p = torch.nan_to_num(torch.log(p), neginf=0.0)
    return -(p * log_p).sum()


def mutual_information(fixed, moving, bins=8):
    centres = torch.linspace(-0.2, 1.2, bins)
    wf = soft_histogram(fixed, centres)
    wm = soft_histogram(moving, centres)
    joint = wf.t().mm(wm)
    joint = joint / joint.sum()
    return entropy(joint.sum(1)) + entropy(joint.sum(0)) - entropy(joint)


def profile(t):
    return 0.5 + 0.45 * torch.sin(3.0 * t) * torch.exp(-0.1 * t * t)


class Shift(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = torch.nn.Parameter(torch.zeros(1))
        self.gain = torch.nn.Parameter(torch.ones(1))

    def forward(self, grid):
        return profile(grid * self.gain + self.offset)


if __name__ == "__main__":
    torch.manual_seed(1)
    grid = torch.linspace(-2, 2, 160)
    fixed = (profile(grid + 0.35) + 0.02 * torch.randn(160)).clamp(-0.2, 1.2)
    shift = Shift()
    opt = torch.optim.SGD(shift.parameters(), lr=0.05)
    for it in range(15):
        opt.zero_grad()
        mi = mutual_information(fixed, shift(grid).clamp(-0.2, 1.2))
        penalty = (shift.gain.log() ** 2).sum()
        (-mi + penalty).backward()
        opt.step()
        if it % 5 == 0:
            print(f"iter {it:3d}  mutual information {mi.detach():.4f}")
    print("estimated offset", shift.offset.detach().tolist())
