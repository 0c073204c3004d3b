"""The paper's studies: rows in, a typed summary, figures and a bundle out. No GPU, no server.

A row holds one measurement; every number of a summary is computed from rows alone, so that it can
be checked again wherever the rows are. Needs NumPy; figures, Parquet and t-SNE need
``pip install 'acpc[report]'``.
"""
