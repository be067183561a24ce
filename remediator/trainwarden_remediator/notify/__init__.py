"""Messages to people: what they say, where they are kept until sent, and their channels."""
