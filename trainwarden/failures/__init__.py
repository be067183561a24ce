"""Ways to fail: `entries` of the taxonomy, `phrases` that tools print; beside them is what tells failures apart.

`trainwarden.taxonomy` and `trainwarden.classify` are the way in.
"""
