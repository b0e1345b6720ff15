"""The matrix of supported versions: see ``__main__``."""
