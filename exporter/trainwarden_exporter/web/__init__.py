"""The HTTP side: pages out of memory, who may see them, and over what."""
