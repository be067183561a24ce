"""One module per scheduler, all behind the protocol in `driver`."""
