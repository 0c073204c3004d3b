"""The service's methods and the messages of their requests. No I/O; both clients use them."""
