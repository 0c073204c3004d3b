"""The workbench on top of the client: sweeps, studies, reports, callbacks and commands."""
