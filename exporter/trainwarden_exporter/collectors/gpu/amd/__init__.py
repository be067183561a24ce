"""AMD GPUs, through amdsmi in a process of its own."""
