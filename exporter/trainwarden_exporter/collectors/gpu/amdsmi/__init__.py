"""AMD GPUs, through the library amdsmi."""
