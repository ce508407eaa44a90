"""Impute missing sensor channels from spatial neighbours, no training involved."""
import torch


def neighbour_weights(xy, k):
    d = torch.cdist(xy, xy)
    d.fill_diagonal_(torch.inf)
    cutoff = d.kthvalue(k, dim=1, keepdim=True).values
    d = d.masked_fill(d > cutoff, torch.inf)
    closeness = 1 / d
    return closeness / closeness.sum(1, keepdim=True), d


def smoothness(values, d):
    share = d / d.sum(dim=1, keepdim=True)
    return (share * (values[:, None] - values[None, :]).abs()).sum(dim=1)


@torch.no_grad()
def main():
    torch.manual_seed(50)
    stations = torch.rand(14, 2) * 30
    truth = torch.sin(stations[:, 0] / 6) + 0.3 * stations[:, 1]
    reading = truth.clone()
    lost = torch.zeros(14, dtype=torch.bool)
    lost[[2, 9]] = True
    reading[lost] = 0.0
    w, d = neighbour_weights(stations, k=4)
    filled = torch.where(lost, w @ reading, reading)
    print("filled in:", filled[lost].tolist())
    rough = smoothness(filled, d)
    print("roughness per station:", rough)


main()
