"""One module or folder for each collector; `registry` lists them."""
