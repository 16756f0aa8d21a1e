__version__ = "0.0.0"  # tools/build_wheel fills it in
