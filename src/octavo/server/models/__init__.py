"""Several models in one server: an engine process and a queue for each, loaded and unloaded while it runs."""
