"""The scripted server that the workbench is asked to work with."""

from client_fixtures import blocks, counterparty, history, target, unused_target
