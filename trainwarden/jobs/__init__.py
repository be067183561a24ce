"""Jobs that use no library: their run records, written on their behalf from what the scheduler and their logs show."""
