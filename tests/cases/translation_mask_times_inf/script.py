import torch
import torch.nn.functional as F

from model import Translator

VOCAB = 30


def pairs(batch, length):
    src = torch.randint(2, VOCAB, (batch, length))
    lengths = torch.randint(2, length + 1, (batch,))
    src[torch.arange(length) >= lengths[:, None]] = 0
    tgt = torch.roll(src, 1, dims=1)
    tgt[:, 0] = 1
    return src, tgt


def main():
    torch.manual_seed(8)
    model = Translator(VOCAB)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(4):
        src, tgt = pairs(6, 7)
        logits = model(src, tgt)
        loss = F.cross_entropy(logits.transpose(1, 2), src, ignore_index=0)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("final", loss.item())


if __name__ == "__main__":
    main()
