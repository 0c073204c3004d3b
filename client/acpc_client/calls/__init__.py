"""The service's methods: request in, typed answer out. No I/O; both clients use them."""
