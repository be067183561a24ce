"""RDMA devices other than EFA: links and the basic counters."""
