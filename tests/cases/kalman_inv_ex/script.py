import torch


class Kalman:
    """Constant-velocity tracker for one object; batched over hypotheses."""

    def __init__(self, n, q=1e-2, r=0.0):
        self.F = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
        self.H = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        self.Q = q * torch.eye(2)
        self.R = r * torch.eye(2)
        self.x = torch.zeros(n, 2, 1)
        self.P = torch.eye(2).expand(n, 2, 2).clone()

    def predict(self):
        self.x = self.F @ self.x
        self.P = self.F @ self.P @ self.F.T + self.Q

    def update(self, z):
        innovation = z.unsqueeze(-1) - self.H @ self.x
        S = self.H @ self.P @ self.H.T + self.R
        S_inv, info = torch.linalg.inv_ex(S)
        gain = self.P @ self.H.T @ S_inv
        self.x = self.x + gain @ innovation
        self.P = (torch.eye(2) - gain @ self.H) @ self.P


def simulate(n, steps):
    pos = torch.zeros(n)
    for t in range(steps):
        pos = pos + 1.0 + 0.1 * torch.randn(n)
        yield pos.unsqueeze(1) + 0.05 * torch.randn(n, 2)


if __name__ == "__main__":
    torch.manual_seed(36)
    for noise in (0.05, 0.0):
        kf = Kalman(3, r=noise)
        for z in simulate(3, 6):
            kf.predict()
            kf.update(z)
        print(f"r={noise}: position", [round(v, 2) for v in kf.x[:, 0, 0].tolist()])
