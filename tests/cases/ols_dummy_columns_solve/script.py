import torch


def one_hot_columns(codes, n):
    out = torch.zeros(len(codes), n, dtype=torch.float64)
    out[torch.arange(len(codes)), codes] = 1.0
    return out


def design_matrix(region, season, area):
    intercept = torch.ones(len(area), 1, dtype=torch.float64)
    return torch.cat([intercept, area.unsqueeze(1), one_hot_columns(season, 3), one_hot_columns(region, 5)], dim=1)


class LeastSquares:
    def __init__(self, ridge=0.0):
        self.ridge = ridge

    def fit(self, X, y):
        penalty = self.ridge * torch.eye(X.shape[1], dtype=X.dtype)
        gram = X.T @ X + penalty
        self.coef = torch.linalg.solve(gram, X.T @ y)
        return self

    def score(self, X, y):
        residual = y - X @ self.coef
        return 1 - residual.square().sum() / (y - y.mean()).square().sum()


def main():
    torch.manual_seed(13)
    n = 120
    region = torch.randint(0, 4, (n,))
    season = torch.randint(0, 3, (n,))
    area = torch.rand(n, dtype=torch.float64) * 100
    rent = 5 * area + 30 * region + torch.randn(n, dtype=torch.float64)
    X = design_matrix(region, season, area)
    for ridge in (1.0, 0.1, 0.0):
        model = LeastSquares(ridge).fit(X, rent)
        print(f"ridge {ridge}: R2 = {model.score(X, rent):.4f}")


if __name__ == "__main__":
    main()
