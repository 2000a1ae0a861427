"""Several front end processes over one engine: for machines on which one does not keep up."""
