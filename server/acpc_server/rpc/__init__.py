"""The wire: servicers, codec, error mapping."""
