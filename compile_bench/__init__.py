"""What tdfunc costs, beside tensordict, torch.func and bare torch, in one process and interleaved."""
