import torch
from torch import nn

torch.manual_seed(37)
torch.set_num_threads(1)
BLANK, SYMBOLS, FRAMES = 0, 6, 20


def utterance():
    length = int(torch.randint(2, 6, ()))
    labels = torch.randint(1, SYMBOLS, (length,))
    frames = torch.zeros(FRAMES, SYMBOLS)
    used = length * 3
    frames[torch.arange(used), labels.repeat_interleave(3)] = 1.0
    frames[2:used:3] = 0.0
    return frames + 0.2 * torch.randn_like(frames), labels, max(used, 6)


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(SYMBOLS, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, SYMBOLS)

    def forward(self, x):
        return self.out(self.rnn(x)[0]).log_softmax(dim=-1)


def greedy(logp):
    best = torch.unique_consecutive(logp.argmax(dim=-1))
    return best[best != BLANK].tolist()


net = Acoustic()
ctc = nn.CTCLoss(blank=BLANK)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(25):
    frames, labels, used = zip(*(utterance() for _ in range(8)))
    logp = net(torch.stack(frames))
    loss = ctc(
        logp.transpose(0, 1),
        torch.cat(labels),
        torch.tensor(used),
        torch.tensor([len(l) for l in labels]),
    )
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    optimizer.step()
    if step % 8 == 0:
        print(f"{step:2d} ctc {loss.item():.4f}")
print("decoded", greedy(logp[0, :used[0]]), "wanted", labels[0].tolist())
