"""Version 1 of the wire contract; generated code beside its .proto files."""
