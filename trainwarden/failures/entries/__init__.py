"""The entries of the taxonomy, one module for each part of a training that fails; `trainwarden.taxonomy` joins them."""
