import torch
import torch.nn as nn
import torch.nn.functional as F


class BagOfWords(nn.Module):
    def __init__(self, vocab, dim, n_classes):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim, mode="sum")
        self.hidden = nn.Linear(dim, 64)
        self.head = nn.Linear(64, n_classes)

    def forward(self, tokens):
        h = F.relu(self.hidden(self.emb(tokens)))
        return self.head(h)


def soft_cross_entropy(student_logits, teacher_probs, tau):
    q = F.softmax(student_logits / tau, dim=-1)
    log_q = torch.log(q)
    return -(teacher_probs * log_q).sum(dim=-1).mean()


def teacher(tokens, table, temperature=2.0):
    scores = table[tokens].sum(dim=1) / temperature
    probs = torch.softmax(scores, dim=-1)
    return 0.9 * probs + 0.1 / probs.size(-1)


torch.manual_seed(0)
VOCAB, CLASSES = 200, 8
table = torch.randn(VOCAB, CLASSES)
student = BagOfWords(VOCAB, 32, CLASSES)
opt = torch.optim.SGD(student.parameters(), lr=0.05)

history = []
for step in range(30):
    tau = 0.5 ** (step // 3)       # anneal the temperature
    tokens = torch.randint(0, VOCAB, (16, 12))
    with torch.no_grad():
        target = teacher(tokens, table)
        entropy = -(target * torch.log(target)).sum(-1).mean()
    loss = soft_cross_entropy(student(tokens), target, tau)
    opt.zero_grad()
    (tau * loss).backward()
    opt.step()
    history.append((loss - entropy).item())

print("last excess loss:", history[-1])
