import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
torch.set_num_threads(1)
device = torch.device("cpu")
VOCAB, T = 24, 10

embed = nn.Embedding(VOCAB, 32)
layer = nn.TransformerEncoderLayer(d_model=32, nhead=4, dim_feedforward=48, dropout=0.0, batch_first=True)
encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
head = nn.Linear(32, VOCAB, bias=False)
params = [*embed.parameters(), *encoder.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 10))

mask = nn.Transformer.generate_square_subsequent_mask(T, device=device)
print("mask row 0:", mask[0, :4])

for step in range(15):
    start = torch.randint(0, VOCAB, (16, 1))
    seq = (start + torch.arange(T + 1)) % VOCAB
    hidden = encoder(embed(seq[:, :-1]), mask=mask, is_causal=True)
    loss = F.cross_entropy(head(hidden).transpose(1, 2), seq[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 0.5)
    optimizer.step()
    scheduler.step()

print(f"loss after {step + 1} steps: {loss.item():.4f}, lr {scheduler.get_last_lr()[0]:.1e}")

encoder.eval()
with torch.no_grad():
    prefix = torch.tensor([[3, 4, 5]])
    for _ in range(T - 3):
        n = prefix.size(1)
        out = encoder(embed(prefix), mask=nn.Transformer.generate_square_subsequent_mask(n))
        prefix = torch.cat([prefix, head(out[:, -1]).argmax(-1, keepdim=True)], dim=1)
print("generated", prefix.tolist())
