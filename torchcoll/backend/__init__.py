"""A backend for torch.distributed: `init_process_group("torchcoll")`."""
