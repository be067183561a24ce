"""A script that calls one function: its name, and what it is given."""

import sys

import trainwarden.ray

print(getattr(trainwarden.ray, sys.argv[1])(*sys.argv[2:]))
