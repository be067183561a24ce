"""RDMA devices: EFA, and InfiniBand or RoCE."""
