"""The run record: where it lives, what its files say, and who may believe them."""
