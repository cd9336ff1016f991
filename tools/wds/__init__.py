"""The command ``wds``: parses, calls the libraries, shows what they return. Imports nothing heavy before it must."""
