"""From a decided incident to its outcome: the scheduler's calls, what is captured before and verified after them."""
